"""The backend options that exist, by the type of their value."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


BOOL = _names("""
    enableInplaceAmbiguityChecking enableLoadAndOffloadRNGState batchSerializationSettings.concatOnVirtualGraphChange
    batchSerializationSettings.concatOnExecutionPhaseChange batchSerializationSettings.concatOnPipelineStageChange
    strictOpVersions opxAliasChecking opxModifyChecking dotOpNames exportPoplarComputationGraph
    exportPoplarVertexGraph separateCallOpPdfs enableOutlining enableOutliningCopyCostPruning rearrangeAnchorsOnHost
    rearrangeStreamsOnHost enablePrefetchDatastreams enableNonStableSoftmax enableReplicatedGraphs
    enableGradientAccumulation instrumentWithHardwareCycleCounter enablePipelining
    disableGradAccumulationTensorStreams disableOptimizerStateTensorStreams compileEngine constantWeights
    enableEngineCaching enableMergeExchange enableFloatingPointChecks enableStochasticRounding
    ensureFp32LossScaleTensor explicitRecomputation enableExplicitMainLoops useHostCopyOps aliasZeroCopy
    delayVarUpdates enableFullyConnectedPass enableSerializedMatmuls enableStableNorm decomposeGradSum
    enableDistributedReplicatedGraphs groupHostSync automaticLossScalingSettings.enabled
    enableSupportedDataTypeCasting groupNormStridedChannelGrouping scheduleNonWeightUpdateGradientConsumersEarly
    replicatedCollectivesSettings.prepareScheduleForMergingCollectives
    replicatedCollectivesSettings.mergeAllReduceCollectives enableExplicitIR
    """)
UNSIGNED = _names("""
    executionPhaseSettings.phases executionPhaseSettings.stages batchSerializationSettings.factor firstDotOp
    finalDotOp numIOTiles mergeVarUpdateMemThreshold looseThresholdAtPeak accumulationFactor swapLimitScheduler
    globalReplicationFactor globalReplicaOffset defaultBufferingDepth defaultPrefetchBufferingDepth
    compilationProgressTotal transitiveClosureOptimizationThreshold automaticLossScalingSettings.updatePeriod
    autodiffSettings.stitchStrategy batchSerializationSettings.transformContext batchSerializationSettings.method
    batchSerializationSettings.batchSchedule autoRecomputation mergeVarUpdate virtualGraphMode syntheticDataMode
    subgraphCopyingStrategy accumulationAndReplicationReductionType meanAccumulationAndReplicationReductionStrategy
    automaticLossScalingSettings.gradientTensorTrackingMethod accumulateOuterFragmentSettings.schedule
    patterns_level
    """)
FLOAT = _names("""
    outlineSequenceBreakCost outlineThreshold timeLimitScheduler
    automaticLossScalingSettings.thresholdUpperCountProportion automaticLossScalingSettings.binEdgeLocation
    """)
STRING = _names("""
    logDir cachePath partialsTypeMatMuls customCodeletCompileFlags serializedPoprithmsShiftGraphsDir kahnTieBreaker
    saveInitializersToFile
    """)
SEQUENCE = _names("""
    dotChecks hardwareInstrumentations customCodelets updatableNamedBuffers
    accumulateOuterFragmentSettings.excludedVirtualGraphs
    """)
MAP = _names("engineOptions reportOptions convolutionOptions matmulOptions lstmOptions gclOptions patterns")


def kind_of(value: object) -> tuple[str, frozenset[str]] | None:
    """The word for the type of a value, and the keys that take such a value; None for a type no key takes."""
    # A bool is an int and must be asked for first; an int may stand where a number with a point is expected.
    if isinstance(value, bool):
        return "bool", BOOL
    if isinstance(value, int):
        return "uint64", UNSIGNED | FLOAT
    if isinstance(value, float):
        return "floating point", FLOAT
    if isinstance(value, str):
        return "string", STRING
    if isinstance(value, list | tuple | set | frozenset):
        return "set / vector", SEQUENCE
    if isinstance(value, dict):
        return "map", MAP
    return None
