"""What a pipeline made by hand refuses."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from openipu.program import Schedule, ScheduleError, check_count, check_mapping
from openipu.tensorflow.configuration import devices
from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.feeds.infeed import IPUInfeedQueue
from openipu.tensorflow.feeds.outfeed import IPUOutfeedMode, IPUOutfeedQueue
from openipu.tensorflow.ops.gradient_reduction import GradientAccumulationReductionMethod as Method
from openipu.tensorflow.pipelines.options import PipelineSchedule, PipelineStageOptions, RecomputationMode

SCHEDULES = {
    PipelineSchedule.Grouped: Schedule.GROUPED,
    PipelineSchedule.Interleaved: Schedule.INTERLEAVED,
    PipelineSchedule.Sequential: Schedule.SEQUENTIAL,
}
_INT32_MAX = 2**31 - 1


def check_arguments(given: dict[str, Any]) -> None:
    """Refuse arguments of `pipeline` that do not fit together; `given` are all of them by name."""
    stages, count = given["computational_stages"], given["gradient_accumulation_count"]
    if not isinstance(stages, list | tuple):
        raise TypeError("computational_stages argument needs to be a list or a tuple.")
    if count is None:
        raise ValueError("gradient_accumulation_count must be specified.")
    if not isinstance(count, int):
        raise UnsupportedError(
            "A gradient_accumulation_count that is a tensor is not supported: accumulators are made for "
            f"a number that is known. Received: gradient_accumulation_count={count!r}. Pass a Python int."
        )
    if count < 0:
        raise ValueError("gradient_accumulation_count must be >= 0.")
    if count > _INT32_MAX:
        raise ValueError("gradient_accumulation_count must be < max int32.")
    if given["continuous_weight_updates"]:
        raise NotImplementedError("Continuous weight updates are currently not supported.")
    _check_enums(given)
    if len(stages) < 2:
        raise ValueError("Pipeline requires at least two computational stages.")
    _check_queues(given)
    _check_stage_options(given, len(stages))
    if given["replicated_optimizer_state_sharding"] and given["offload_weight_update_variables"] is False:
        raise ValueError(
            "To use replicated_optimizer_state_sharding, optimizer state must be offloaded by using "
            "offload_weight_update_variables."
        )


def mapping_of(given: dict[str, Any], schedule: PipelineSchedule) -> tuple[int, ...]:
    """The IPU of each stage."""
    stages, mapping = len(given["computational_stages"]), given["device_mapping"]
    serialised = given["batch_serialization_iterations"] > 1
    if mapping is None and serialised:
        mapping = [0] * stages
    if serialised and schedule is not PipelineSchedule.Sequential:
        raise NotImplementedError("Batch serialization is only supported with the `Sequential` schedule.")
    training = given["optimizer_function"] is not None
    if isinstance(mapping, list | tuple):
        # Parallel stages: the first IPU of each stage tells the pattern, all of them how many there are.
        mapping = [max(m) if isinstance(m, list | tuple) else m for m in mapping]
    checked = check_mapping(SCHEDULES[schedule], stages, training, mapping)
    if serialised and len(set(checked)) > 1:
        raise NotImplementedError(
            "When using batch serialization, all the pipeline stages need to be mapped to a single IPU."
        )
    config = devices.active_config()
    io_tiles = config is not None and config.io_tiles.num_io_tiles > 0
    try:
        check_count(SCHEDULES[schedule], stages, given["gradient_accumulation_count"], training, checked, io_tiles)
    except ScheduleError as error:
        raise tf.errors.FailedPreconditionError(None, None, str(error)) from None
    return checked


def _check_enums(given: dict[str, Any]) -> None:
    method = Method.parse(given["reduction_method"])
    if given["batch_serialization_iterations"] != 1 and method is not Method.SUM:
        raise ValueError(
            "batch_serialization_iterations != 1 is only supported when reduction_method is "
            "GradientAccumulationReductionMethod.SUM"
        )
    for name, kind in (("pipeline_schedule", PipelineSchedule), ("recomputation_mode", RecomputationMode)):
        if given[name] is not None and not isinstance(given[name], kind):
            raise TypeError(f"The given {name} is not a member of the {kind.__name__} enumeration.")
    mode, schedule = given["recomputation_mode"], given["pipeline_schedule"] or PipelineSchedule.Grouped
    wrong = {
        RecomputationMode.RecomputeThenBackpropagate: PipelineSchedule.Sequential,
        RecomputationMode.RecomputeAndBackpropagateInterleaved: PipelineSchedule.Interleaved,
    }
    if mode in wrong and schedule is wrong[mode]:
        raise tf.errors.UnimplementedError(
            None, None, f"The recomputation mode {mode.name} is not supported with the schedule {schedule.name}."
        )


def _check_queues(given: dict[str, Any]) -> None:
    infeed, outfeed = given["infeed_queue"], given["outfeed_queue"]
    if infeed is not None and not isinstance(infeed, IPUInfeedQueue):
        raise TypeError("infeed_queue is not an instance of ipu_infeed_queue.IPUInfeedQueue")
    if outfeed is not None and not isinstance(outfeed, IPUOutfeedQueue):
        raise TypeError("outfeed_queue is not an instance of ipu_outfeed_queue.IPUOutfeedQueue")
    if given["outfeed_loss"] and given["outfeed_mask"] is not None:
        raise ValueError("Only one of `outfeed_loss` and `outfeed_mask` can be set.")
    if given["optimizer_function"] is None:
        if given["outfeed_mask"] is not None:
            raise ValueError("An optimizer_function must be provided when outfeed_mask is set.")
        if given["outfeed_loss"]:
            raise ValueError("An optimizer_function must be provided when outfeed_loss is True.")
    if given["accumulate_outfeed"]:
        if outfeed is None:
            raise ValueError("An outfeed_queue must be provided when accumulate_outfeed is True.")
        if outfeed.outfeed_mode is not IPUOutfeedMode.ALL:
            raise ValueError("To accumulate the outfeed, it must be in IPUOutfeedMode ALL.")


def _check_stage_options(given: dict[str, Any], stages: int) -> None:
    for name in ("forward_propagation_stages_poplar_options", "backward_propagation_stages_poplar_options"):
        options: Sequence[Any] | None = given[name]
        if options is None:
            continue
        if not isinstance(options, list | tuple) or not all(isinstance(o, PipelineStageOptions) for o in options):
            raise TypeError(f"{name} must be a list or tuple of PipelineStageOptions.")
        if len(options) != stages:
            raise ValueError(f"{name} must have one entry for each of the {stages} stages. Received: {len(options)}.")
    update = given["weight_update_poplar_options"]
    if update is not None and not isinstance(update, PipelineStageOptions):
        raise TypeError("weight_update_poplar_options must be PipelineStageOptions.")
