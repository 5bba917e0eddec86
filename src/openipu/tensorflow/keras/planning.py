"""From a model's options and the length of its data to a plan: replicas, accumulation, pipeline, steps."""

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from openipu import instances as processes
from openipu.program import OutputMode, Pipeline, Plan, Schedule, ScheduleError, check_count, check_mapping
from openipu.tensorflow.configuration import devices
from openipu.tensorflow.keras import stages
from openipu.tensorflow.keras.fit_arguments import positive
from openipu.tensorflow.keras.steps import Steps, infer

log = logging.getLogger("openipu.keras")

# The schedules each recomputation mode cannot be used with.
_NOT_WITH: dict[str, tuple[Schedule, ...]] = {
    "Auto": (),
    "RecomputeThenBackpropagate": (Schedule.SEQUENTIAL,),
    "RecomputeAndBackpropagateInterleaved": (Schedule.INTERLEAVED,),
}


def plan(model: Any, mode: str, length: float | None, steps: int | None, epochs: int = 1) -> tuple[Plan, Steps]:
    """How a call of `fit`, `evaluate` or `predict` is spread over steps, updates, replicas and stages.

    Args:
      model: an extended model.
      mode: "train", "test" or "predict".
      length: elements of the data; None when unknown, math.inf when it never ends.
      steps: elements the user asked for in one epoch.
      epochs: epochs to run.
    """
    state = model._ipu
    pipeline = _pipeline(model)
    replicas = devices.replicas(state.strategy.device_ordinal, pipeline.shards if pipeline else 1)
    per_execution = positive("steps_per_execution", state.keras.steps_per_execution(model)) or 1
    accumulation = _accumulation(model, pipeline) if mode == "train" else 1
    if mode == "train":
        _check_divisible(per_execution, accumulation, pipeline)
    found = infer(length, steps, per_execution, replicas, epochs, mode == "train")
    if mode == "train":
        _check_divisible(found.per_execution, accumulation, pipeline)
    if pipeline is not None and mode == "train":
        _warn_of_moving_averages(model)
    if pipeline is not None:
        _check_count(pipeline, accumulation if mode == "train" else found.per_execution, mode == "train")
    every_step = (
        mode == "predict"
        or (pipeline is not None and state.options.accumulate_outfeed)
        or state.options.asynchronous_callbacks
    )
    made = Plan(
        device_iterations=found.per_execution,
        replicas=replicas,
        gradient_accumulation=accumulation,
        accumulation_reduction=state.options.reduction,
        pipeline=pipeline,
        outputs=OutputMode.ALL if every_step else OutputMode.FINAL,
        stochastic_rounding=devices.stochastic_rounding(replicas),
        instances=devices.instances(state.strategy.instances),
    )
    if made.instances > 1 and mode != "predict":
        processes.equal(f"{epochs} epochs of {found.count} steps, {found.per_execution} an execution", f"Keras: {mode}")
    return made, found


def one_update(model: Any) -> Plan:
    """One weight update of one replica, with the model's pipeline and accumulation, whatever data there is."""
    pipeline = _pipeline(model)
    accumulation = _accumulation(model, pipeline)
    if pipeline is not None:
        _check_count(pipeline, accumulation, True)
    return Plan(
        device_iterations=accumulation,
        gradient_accumulation=accumulation,
        accumulation_reduction=model._ipu.options.reduction,
        pipeline=pipeline,
        outputs=OutputMode.FINAL,
    )


def _pipeline(model: Any) -> Pipeline | None:
    if not stages.is_pipelined(model):
        return None
    options = model._ipu.options
    count = stages.stage_count(model)
    mapping = tuple(options.device_mapping) if options.device_mapping is not None else tuple(range(count))
    if len(mapping) != count:
        raise ValueError(f"Each stage must be mapped to an IPU: {len(mapping)} mappings != {count} stages")
    stages.check_devices(model, mapping)
    given = options.pipelining_kwargs.get("pipeline_schedule")
    schedule = Schedule.GROUPED if given is None else _schedule(given)
    _check_memory_options(options.pipelining_kwargs, schedule)
    return Pipeline(stages=count, schedule=schedule, device_mapping=mapping, recompute=_recompute())


def _schedule(given: Any) -> Schedule:
    name = getattr(given, "name", "")
    if name.upper() not in Schedule.__members__:
        raise TypeError("The given pipeline_schedule is not a member of the PipelineSchedule enumeration.")
    return Schedule[name.upper()]


def _check_memory_options(given: dict[str, Any], schedule: Schedule) -> None:
    """Refuse what an IPU refuses about recomputation and sharded optimizer state, though neither changes numbers."""
    mode = given.get("recomputation_mode")
    if mode is not None and getattr(mode, "name", None) not in _NOT_WITH:
        raise TypeError("The given recomputation_mode is not a member of the RecomputationMode enumeration.")
    if mode is not None and schedule in _NOT_WITH[mode.name]:
        message = f"The recomputation mode {mode.name} is not supported with the pipeline schedule {schedule.value}."
        raise tf.errors.UnimplementedError(None, None, message)
    if given.get("replicated_optimizer_state_sharding") and given.get("offload_weight_update_variables") is False:
        raise ValueError(
            "To use replicated_optimizer_state_sharding, optimizer state must be offloaded by using "
            "offload_weight_update_variables."
        )


def _recompute() -> bool:
    config = devices.active_config()
    return bool(config is not None and config.allow_recompute)


def _accumulation(model: Any, pipeline: Pipeline | None) -> int:
    options = model._ipu.options
    if pipeline is None:
        return options.accumulation or 1
    if options.pipeline_accumulation is None:
        raise ValueError(
            "The model which you are attempting to train is pipelined, however "
            "`gradient_accumulation_steps_per_replica` has not been set through `set_pipelining_options()`. "
            "Set it to a number of steps that the pipeline schedule allows."
        )
    return options.pipeline_accumulation


def _check_divisible(per_execution: int, accumulation: int, pipeline: Pipeline | None) -> None:
    if per_execution % accumulation:
        kind = "pipelined " if pipeline is not None else ""
        raise RuntimeError(
            f"The {kind}model has been configured to use gradient accumulation for training, however the current "
            f"`steps_per_execution` value (set to {per_execution}) is not divisible by "
            f"`gradient_accumulation_steps_per_replica` ({accumulation}). You need to adjust either of these values "
            "so that it is."
        )


def _check_count(pipeline: Pipeline, count: int, training: bool) -> None:
    check_mapping(pipeline.schedule, pipeline.stages, training, pipeline.device_mapping)
    config = devices.active_config()
    io_tiles = bool(config is not None and config.io_tiles.num_io_tiles > 0)
    try:
        check_count(pipeline.schedule, pipeline.stages, count, training, pipeline.device_mapping, io_tiles)
    except ScheduleError as error:
        raise tf.errors.FailedPreconditionError(None, None, str(error)) from None


def _warn_of_moving_averages(model: Any) -> None:
    for layer in model._ipu.keras.all_layers(model):
        if type(layer).__name__ == "BatchNormalization" and 0 < layer.momentum < 1:
            log.warning(
                "%s is a BatchNormalization layer in a pipelined model. openipu updates its moving statistics for "
                "every micro-batch; on an IPU they are not properly updated in pipelined training.", layer.name,
            )  # fmt: skip
            return


def accumulators(model: Any, made: Plan, trained: Sequence[bool], captured: int = 0) -> tuple[str | None, ...] | None:
    """The dtype of every gradient's accumulator: one for all, or what the user's function says of each variable.

    Args:
      model: an extended model.
      made: the plan.
      trained: of the variables that are to be trained, which have a gradient.
      captured: how many gradients follow that belong to no variable.
    """
    options = model._ipu.options
    if made.pipeline is None:
        given = options.accumulation_kwargs.get("dtype")
    else:
        given = options.pipelining_kwargs.get("gradient_accumulation_dtype")
    if given is None or made.gradient_accumulation == 1:
        return None
    variables = [v for v, wanted in zip(model._ipu.keras.trainable(model), trained, strict=True) if wanted]
    if callable(given) and not isinstance(given, (tf.DType, type)):
        chosen: list[Any] = [given(v) for v in variables]
    else:
        chosen = [given] * len(variables)
    return tuple(None if d is None else tf.as_dtype(d).name for d in [*chosen, *[None] * captured])
