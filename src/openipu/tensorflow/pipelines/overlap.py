"""A function that is nothing but one pipeline, as a program of the core: its stages overlap on several JAX devices.

Everything else, and everything on one device, is a loop of one program (`pipeline`), which computes the same.
"""

import contextlib
import contextvars
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import attrs
import jax
import numpy as np
import tensorflow as tf

from openipu.compiler import devices_for
from openipu.contexts import during
from openipu.program import Pipeline, Plan, Reduction
from openipu.runtime import Session
from openipu.tensorflow.boundary import always_converted, eager_mode
from openipu.tensorflow.capture.function import Captured, capture
from openipu.tensorflow.configuration import devices, synthetic
from openipu.tensorflow.executor import run
from openipu.tensorflow.executor.setting import run as run_session
from openipu.tensorflow.executor.setting import setting_of, showing_compilation
from openipu.tensorflow.feeds import loops
from openipu.tensorflow.feeds.program import has_feeds
from openipu.tensorflow.ops.emit import captured as capturing
from openipu.tensorflow.ops.gradient_reduction import GradientAccumulationReductionMethod as Method
from openipu.tensorflow.pipelines import checks
from openipu.tensorflow.pipelines.gradients import gradients_of
from openipu.tensorflow.pipelines.micro_batch import STAGE, accumulator_dtype, described_by, forward, sent_of
from openipu.tensorflow.pipelines.options import PipelineSchedule
from openipu.tensorflow.program.assembly import Staging, assemble

Tracing = Callable[[], contextlib.AbstractContextManager]

_found: contextvars.ContextVar[list | None] = contextvars.ContextVar("openipu_pipelines", default=None)

# What may stand around the pipeline without being part of the program.
_NOTHING = {"Const", "Identity", "NoOp", "Placeholder"}


# What keeps values from one micro-batch to the next; micro-batches in flight at the same time have no next.
_KEEPING = {b"openipu.delay"}


class _OneAfterAnother(Exception):
    """The stages need to know which micro-batch they are in."""


@attrs.frozen(eq=False)
class _Call:
    """A call of `pipeline`: its arguments by name, and the IPU of each stage."""

    given: dict[str, Any]
    mapping: tuple[int, ...]

    def __getitem__(self, name: str) -> Any:
        return self.given[name]


@attrs.frozen(eq=False)
class _StagesByName(Staging):
    """The stage of an operation is in its name, and in that of its gradient."""

    def part(self, scope: str) -> contextlib.AbstractContextManager:
        plain = re.sub(r"^(.*/)?gradients(_\d+)?/", "gradient_tape/", scope)
        return super().part(plain)


def recorded(given: dict[str, Any], mapping: tuple[int, ...]) -> bool:
    """Whether somebody only wants to know that a pipeline is called, and with what."""
    found = _found.get()
    if found is None:
        return False
    found.append(_Call(given, mapping))
    return True


def _recording() -> AbstractContextManager[list[_Call]]:
    return during(_found, [])


def compile_overlapping(
    function: Callable, specs: Sequence[tf.TensorSpec], name: str, ordinal: int, tracing: Tracing
) -> run.Runner | None:
    """A function of arrays that runs the pipeline, if `function` is one whose stages have a JAX device each.

    Args:
      function: of flat tensors.
      specs: of its arguments.
      name: for messages.
      ordinal: of the device.
      tracing: the context that functions of one replica are traced in.
    """
    if jax.local_device_count() < 2 or any(synthetic.instead_of(kind) for kind in ("infeed", "outfeed")):
        return None
    with eager_mode():
        call, constants = _only_pipeline(function, specs)
    if call is None or devices.replicas(ordinal, max(call.mapping) + 1) != 1:
        return None
    count, repeats = call["gradient_accumulation_count"], call["repeat_count"]
    schedule = call["pipeline_schedule"]
    plan = Plan(
        device_iterations=count * repeats,
        gradient_accumulation=count,
        accumulation_reduction=Reduction[Method.parse(call["reduction_method"]).name],
        pipeline=Pipeline(
            len(call.mapping),
            checks.SCHEDULES[PipelineSchedule.Grouped if schedule is None else schedule],
            call.mapping,
        ),
        stochastic_rounding=devices.stochastic_rounding(1),
    )
    if devices_for(plan) is None:
        return None
    try:
        with eager_mode(), showing_compilation(name):
            session = _session(call, constants, specs, name, plan, ordinal, tracing)
    except _OneAfterAnother:
        return None
    return _runner(call, session, ordinal)


def _only_pipeline(function: Callable, specs: Sequence[tf.TensorSpec]) -> tuple[_Call | None, list[Any]]:
    """The pipeline that a function consists of, and its constant inputs: numbers of arguments, or tensors."""
    with _recording() as found, capturing():
        concrete = tf.function(function, autograph=False).get_concrete_function(*specs)
    others = [op.type for op in concrete.graph.get_operations() if op.type not in _NOTHING]
    if len(found) != 1 or others or concrete.outputs:
        return None, []
    (call,) = found
    parallel = any(isinstance(stage, list | tuple) for stage in call["computational_stages"])
    if parallel or call["batch_serialization_iterations"] != 1 or not isinstance(call["repeat_count"], int):
        return None, []
    positions = {id(tensor): i for i, tensor in enumerate(concrete.inputs)}
    constants: list[Any] = []
    for value in call["inputs"] or ():
        if tf.is_tensor(value) and not hasattr(value, "numpy"):
            if id(value) not in positions:
                return None, []
            constants.append(positions[id(value)])
        elif isinstance(value, tf.Variable):
            return None, []
        else:
            constants.append(tf.convert_to_tensor(value))
    return call, constants


def _session(
    call: _Call,
    constants: list[Any],
    specs: Sequence[tf.TensorSpec],
    name: str,
    plan: Plan,
    ordinal: int,
    tracing: Tracing,
) -> Session:
    setting = setting_of(ordinal, synthetic.of_function())
    infeed, outfeed, optimizer_function = call["infeed_queue"], call["outfeed_queue"], call["optimizer_function"]
    parts = [] if infeed is None else infeed.flat_specs
    stages = [always_converted(stage) for stage in call["computational_stages"]]
    traced: dict[str, Any] = {}

    def step(*tensors: tf.Tensor) -> list[tf.Tensor]:
        with tracing(), loops.counting(_refuse_number):
            return one_micro_batch(*tensors)

    def one_micro_batch(*tensors: tf.Tensor) -> list[tf.Tensor]:
        values = [tensors[c] if isinstance(c, int) else c for c in constants]
        element = [] if infeed is None else tf.nest.pack_sequence_as(infeed.element_spec, tensors[len(specs) :])
        given, named = loops.as_arguments(tuple(element) if infeed is None else element)
        with tf.GradientTape() as tape:
            results = forward(stages, call.mapping, [*values, *given], named)
        pairs, sent = [], results
        if optimizer_function is not None:
            described = described_by(always_converted(optimizer_function), results)
            if described.gradient_capture_context is not None or described.captured_gradient_outfeed is not None:
                raise _OneAfterAnother
            pairs = gradients_of(described, tape.watched_variables())
            sent = sent_of(results, described, call["outfeed_loss"], call["outfeed_mask"])
            traced.update(described=described, variables=[variable for _, variable in pairs])
        flat = [] if outfeed is None else outfeed.declare(sent)
        return [*(gradient for gradient, _ in pairs), *flat]

    captured = capture(step, [*specs, *parts], name)
    if has_feeds(captured) or captured.graph.calls & _KEEPING:
        raise _OneAfterAnother
    variables = traced.get("variables", [])
    rule = call["gradient_accumulation_dtype"]
    program = assemble(
        name,
        [*specs, *parts],
        captured,
        gradients=len(variables),
        update=_update(traced, name, tracing) if variables else None,
        staging=_StagesByName(_stage_of, len(call.mapping)),
        accumulators=tuple(accumulator_dtype(rule, v).name for v in variables) if rule is not None else None,
        traps=bool(setting.traps),
    )
    return program.session(plan, setting)


def _update(traced: dict[str, Any], name: str, tracing: Tracing) -> Captured:
    described, variables = traced["described"], traced["variables"]

    def update(*gradients: tf.Tensor) -> None:
        pairs = list(zip(gradients, variables, strict=True))
        with tracing():
            described.opt.apply_gradients(pairs, *described.apply_gradients_args, **described.apply_gradients_kwargs)

    return capture(update, [tf.TensorSpec(v.shape, v.dtype) for v in variables], f"{name}_update")


def _refuse_number() -> tf.Tensor:
    raise _OneAfterAnother


def _stage_of(scope: str) -> int | None:
    found = re.search(rf"{STAGE}(\d+)", scope)
    return int(found[1]) if found else None


def _runner(call: _Call, session: Session, ordinal: int) -> run.Runner:
    infeed, outfeed = call["infeed_queue"], call["outfeed_queue"]
    steps, repeats = session.plan.device_iterations, call["repeat_count"]
    for queue in (infeed, outfeed):
        if queue is not None:
            queue.claim(1)

    def execute(inputs: list[np.ndarray]) -> None:
        blocks = [] if infeed is None else [block[0] for block in infeed.reader(1).block(steps, 1)]
        feeds = session.place(lambda: [*(np.broadcast_to(i, (steps, *i.shape)) for i in inputs), *blocks])
        results = run_session(session, feeds, devices.next_seeds(ordinal, 1))
        if outfeed is not None:
            outputs = [np.asarray(output) for output in results.outputs]
            if call["accumulate_outfeed"]:
                rule = call["accumulate_outfeed_dtype"]
                kinds = [accumulator_dtype(rule, spec).as_numpy_dtype for spec in outfeed.flat_specs]
                outputs = [
                    o.reshape(repeats, -1, *o.shape[1:]).astype(kind).sum(1, dtype=kind)
                    for o, kind in zip(outputs, kinds, strict=True)
                ]
            outfeed.writer.put([output[-1:] for output in outputs] if outfeed.last else outputs)
            outfeed.ran = True

    return execute


run.compile_otherwise(compile_overlapping)
