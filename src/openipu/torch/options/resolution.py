"""What an executor makes of the options it is given: a checked copy of its own, every default decided."""

import attrs

from openipu import environment
from openipu.torch.enums import ConnectionType, MeanReductionStrategy, OutputMode
from openipu.torch.exceptions import Error, UnsupportedError
from openipu.torch.options.options import Options
from openipu.torch.options.popart import check_popart
from openipu.torch.options.strategies import PipelinedExecution, ShardedExecution


def resolve(options: Options | None, training: bool) -> Options:
    """The options of one executor; the object given becomes frozen.

    Args:
      options: what the user gave; None for the defaults.
      training: whether the executor trains.

    Returns:
      A frozen copy with the output modes of the model and of its anchors decided.
    """
    if options is None:
        options = Options()
    if not isinstance(options, Options):
        raise Error(f"Invalid type: 'options' is of type {type(options)} (Expected poptorch.Options)")
    if not training:
        _check_inference(options)
    options._freeze()
    own = options.clone()
    if own.defaultOutputMode():
        own.outputMode(OutputMode.Final if training else OutputMode.All)
    mode, period = OutputMode(own.output_mode), own.output_return_period
    for name, anchor in own.anchored_tensors.items():
        if anchor.output_mode is None:
            own.anchored_tensors[name] = attrs.evolve(anchor, output_mode=mode, output_return_period=period)
    own._freeze()
    return own


def use_running_mean(options: Options) -> None:
    """Lets an executor's options say that gradients are averaged as they come: a float16 sum would overflow."""
    options._unfreeze()
    options.Training.setMeanAccumulationAndReplicationReductionStrategy(MeanReductionStrategy.Running)
    options._freeze()


def validate(options: Options) -> None:
    """Refuses what only shows when a model is compiled: unknown backend options, targets that exclude each other."""
    check_popart(options._Popart.options)
    factor = options._Popart.options.get("accumulationFactor", options.Training.gradient_accumulation)
    if factor != options.Training.gradient_accumulation:
        raise UnsupportedError(
            f"accumulationFactor={factor} of Options._Popart is not supported. Set "
            f"Options.Training.gradientAccumulation({factor}), which also cuts the batch accordingly."
        )
    if options.connection_type != ConnectionType.Never:
        return
    if uses_ipu_model(options):
        raise Error("ConnectionType.Never / poptorch.Options.useOfflineIpuTarget not supported for the IPU model")
    if options.exists("ipu_id"):
        raise Error("Offline compilation targeting a specific id not supported")


def uses_ipu_model(options: Options) -> bool:
    """Whether the software model was asked for; the options win over the environment."""
    return options.use_model if options.exists("use_model") else environment.poptorch_ipu_model()


def _check_inference(options: Options) -> None:
    if options.Training.gradient_accumulation == 1:
        return
    message = (
        "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its default value (1) when "
        "running a poptorch.inferenceModel()."
    )
    strategy = options._execution_strategy
    if isinstance(strategy, PipelinedExecution) and not isinstance(strategy, ShardedExecution):
        message += (
            " Use poptorch.Options().deviceIterations to process a sufficient number of batches each run for pipelined "
            "execution instead."
        )
    raise Error(message)
