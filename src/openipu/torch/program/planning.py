"""Options become a plan: PopTorch counts weight updates where the core counts micro-batches."""

from collections.abc import Sequence

from openipu import instances
from openipu.program import OutputMode, Pipeline, Plan, Reduction, Schedule
from openipu.torch import enums
from openipu.torch.exceptions import Error
from openipu.torch.options import Options, PipelinedExecution, ShardedExecution
from openipu.torch.program.batching import batching_of, check_output_mode


def plan_of(
    options: Options,
    training: bool,
    pipeline: Pipeline | None = None,
    narrow_accumulators: bool = False,
    every_step: bool = False,
    together: int = 1,
) -> Plan:
    """How a program runs that was given these options.

    Args:
      options: the executor's options, as `openipu.torch.options.resolve` returns them.
      training: whether there are weight updates.
      pipeline: the stages, for a model cut by blocks (see `pipeline_of`).
      narrow_accumulators: whether accumulators are narrower than gradients.
      every_step: whether outputs of all steps are wanted, whatever the mode.
      together: processes that run the model together (see `meet`).

    Returns:
      The plan. Every step's outputs come back in all modes but Final; `openipu.torch.program.batching.to_result` picks.
    """
    batching = batching_of(options, training)
    mode = enums.OutputMode(options.output_mode)
    check_output_mode(mode, options.output_return_period, batching)
    for name, value in (
        ("deviceIterations", batching.device_iterations),
        ("replicationFactor", batching.replicas),
        ("Training.gradientAccumulation", batching.accumulation),
    ):
        if value < 1:
            raise Error(f"Options.{name} must be at least 1. Received: {value}. Set it to 1 or more.")
    return Plan(
        device_iterations=batching.steps,
        replicas=batching.replicas,
        gradient_accumulation=batching.accumulation,
        accumulation_reduction=_accumulation_reduction(options, narrow_accumulators),
        replica_reduction=_replica_reduction(options),
        pipeline=pipeline,
        outputs=OutputMode.FINAL if mode is enums.OutputMode.Final and not every_step else OutputMode.ALL,
        stochastic_rounding=bool(options._Popart.options.get("enableStochasticRounding")),
        instances=together,
    )


def meet(options: Options, training: bool) -> int:
    """How many processes run a model together; those that train meet here, if they have not met before.

    Models that do not train need nobody else, so they are alone in processes that have not met.
    """
    processes = options.Distributed.numProcesses
    if processes == 1 or not (training or instances.joined()):
        return 1
    instances.join(options.Distributed.processId, processes)
    return len(instances.current())


def replicas_of(options: Options, together: int) -> tuple[int, tuple[int, ...]]:
    """How many processes have replicas of a model, and which of them run it here.

    Args:
      options: the executor's options.
      together: how many run it together, as `meet` says.
    """
    alone = (options.Distributed.processId,)
    return options.Distributed.numProcesses, instances.current() if together > 1 else alone


def pipeline_of(ipus: Sequence[int], options: Options, training: bool) -> Pipeline | None:
    """The stages of a model whose blocks run on the given IPUs.

    Args:
      ipus: the IPU of every block, in the order in which the blocks run.
      options: the executor's options.
      training: whether there is a backward pass.

    Returns:
      The pipeline; None when everything runs on one IPU.
    """
    mapping = stage_ipus(ipus)
    strategy = options._execution_strategy
    pipelined = isinstance(strategy, PipelinedExecution) and not isinstance(strategy, ShardedExecution)
    if pipelined:
        _check_stages(len(mapping), options, training)
    if len(mapping) == 1:
        return None
    schedule = Schedule.GROUPED if pipelined else Schedule.SEQUENTIAL
    # Stages on several IPUs keep no activations for the backward pass: the original turns recomputation on.
    return Pipeline(stages=len(mapping), schedule=schedule, device_mapping=mapping, recompute=pipelined and training)


def stage_ipus(ipus: Sequence[int]) -> tuple[int, ...]:
    """The IPU of every forward stage: a new stage begins where the IPU changes, and the first is on IPU 0."""
    found = [0]
    for ipu in ipus:
        if ipu != found[-1]:
            found.append(ipu)
    return tuple(found)


def _check_stages(forward: int, options: Options, training: bool) -> None:
    if forward == 1:
        return
    if training:
        stages = 2 * forward - 1
        if options.Training.gradient_accumulation < stages:
            raise Error(
                "poptorch.Options().Training.gradientAccumulation must be greater than or equal to the number of "
                f"pipeline stages ({stages}) when using poptorch.PipelinedExecution. Please note that a model with "
                f"{forward} pipeline stages in PopTorch will have an additional {forward - 1} stages when training."
            )
    elif options.device_iterations < forward:
        raise Error(
            "poptorch.Options().deviceIterations must be greater than or equal to the number of pipeline stages "
            f"({forward}) when using PopTorch.PipelinedExecution."
        )


def _accumulation_reduction(options: Options, narrow: bool) -> Reduction:
    training = options.Training
    if training.accumulation_and_replication_reduction_type == enums.ReductionType.Sum:
        return Reduction.SUM
    running = training.meanAccumulationAndReplicationReductionStrategy == enums.MeanReductionStrategy.Running
    # A narrow accumulator would overflow with a sum that is divided later.
    return Reduction.RUNNING_MEAN if running or narrow else Reduction.MEAN


def _replica_reduction(options: Options) -> Reduction:
    is_sum = options.Training.accumulation_and_replication_reduction_type == enums.ReductionType.Sum
    return Reduction.SUM if is_sum else Reduction.MEAN
