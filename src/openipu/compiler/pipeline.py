"""Compile a step cut into stages: one function for each part, on the device of its stage."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp
from jax.extend import core
from jax.sharding import SingleDeviceSharding

from openipu.compiler import passes, progress, replicated
from openipu.compiler.cache import Cache
from openipu.compiler.execution import traced_step
from openipu.compiler.inspection import Inspection, naming
from openipu.compiler.segments import Segment, split
from openipu.errors import UnsupportedError
from openipu.jax_boundary import dce_jaxpr
from openipu.program import Plan, Program
from openipu.program.program import Step
from openipu.program.replica import ALONE, tracing_for

log = logging.getLogger("openipu.cache")

# One of `jax.devices()`; JAX gives their class no name that type checkers accept.
Device = Any


@attrs.frozen(eq=False)
class Part:
    """One part of the step, compiled for its device.

    Attributes:
      inputs, outputs: variables of the step's jaxpr.
      call: takes the inputs, returns the outputs; gradients are reduced over replicas.
      device: where it runs.
    """

    inputs: tuple[core.Var, ...]
    outputs: tuple[core.Var, ...]
    call: Callable
    device: Device


@attrs.frozen(eq=False)
class UpdatePart:
    """The weight update of one stage: indices of what it takes and makes."""

    shared_in: tuple[int, ...]
    local_in: tuple[int, ...]
    gradients_in: tuple[int, ...]
    shared_out: tuple[int, ...]
    call: Callable
    device: Device


@attrs.frozen(eq=False)
class PipelineExecutable:
    """A program cut into stages, compiled: parts to be run in the order of a schedule.

    Attributes:
      program, plan: what was compiled.
      parts: every stage forward, then (when training) every stage backward, last stage first.
      updates: the weight update of every stage.
      arguments: the variables of the step's jaxpr that are its arguments: shared, local, batch, key.
      results: what the step returns: gradients, local, outputs; variables or literals.
      homes: the device of every shared and of every local value.
      add: adds a gradient to an accumulator: (total, gradient, seen) -> total.
      finish: computes what is computed once at the end, on the device of the last stage.
      rows: none: parts are fed micro-batches, not row numbers.
    """

    program: Program
    plan: Plan
    parts: tuple[Part, ...]
    updates: tuple[UpdatePart, ...]
    arguments: tuple[tuple[core.Var, ...], ...]
    results: tuple[tuple, ...]
    homes: tuple[tuple[Device, ...], tuple[Device, ...]]
    add: Callable
    finish: Callable
    rows: None = None


def devices_for(plan: Plan) -> list[Device] | None:
    """The device of every stage when there are enough of them for stages to run at the same time; None otherwise.

    Stages of several processes run one after the other: their gradients are reduced within one program.
    """
    if plan.pipeline is None or plan.instances > 1 or not 2 <= plan.pipeline.shards <= jax.local_device_count():
        return None
    return [jax.local_devices()[ipu] for ipu in plan.pipeline.device_mapping]


def compile_pipeline(
    program: Program,
    plan: Plan,
    devices: Sequence[Device],
    cache: Cache | None = None,
    inspection: Inspection | None = None,
) -> PipelineExecutable:
    """Compile every part of a pipelined program for the device of its stage; XLA sees each when it first runs.

    Args:
      program, plan, devices: what is compiled, and the device of every stage.
      cache: which nothing is kept in.
      inspection: looks at the step of one replica; may refuse by raising.
    """
    if cache is not None:
        log.warning(
            "%s has stages on several JAX devices: its parts are compiled in every run, not kept in the cache %s.",
            program.name,
            cache.folder,
        )
    progress.begin("Lowering")
    training = program.update is not None
    stages = len(devices)
    with jax.enable_x64(True):
        with naming(inspection):
            own = attrs.evolve(program, step=_with_own_gradients(program.step))
            closed, structure = traced_step(own, plan.over(1), plan.stochastic_rounding)
        if inspection is not None:
            inspection.traced(closed, structure)()
        # What nobody uses would be computed in the first part, which then needs values of other stages.
        used, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
        closed = core.ClosedJaxpr(used, closed.consts)
        segments = split(closed, 2 * stages if training else stages)
        progress.begin("Passes")
        place = [*devices, *reversed(devices)]
        groups = _grouped(closed.jaxpr.invars, [len(program.shared), len(program.local), len(program.batch)])
        sizes = [child.num_leaves for child in structure.children()]
        results = _grouped(closed.jaxpr.outvars, sizes[:-1])
        shared = set(groups[0])
        gradients = {v for v in results[0] if isinstance(v, core.Var)}
        parts = tuple(_part(s, place[s.index], plan, shared, gradients) for s in segments)
        homes = (_homes(groups[0], parts, devices[0]), _homes(groups[1], parts, devices[0]))
        updates: tuple[UpdatePart, ...] = ()
        if training:
            where = [_maker(g, parts) for g in results[0]]
            updates, owners = _updates(program, homes[0], where, devices, groups[0], parts)
            homes = (owners, homes[1])
        _check_local_state(program, groups[1], results[1], segments)
        add = jax.jit(lambda total, gradient, seen: replicated.add_gradient(total, gradient, seen, plan))
        finish = jax.jit(replicated.finish(program, plan.over(1)))
    progress.finish()
    return PipelineExecutable(
        program, plan, parts, updates, tuple(map(tuple, groups)), tuple(map(tuple, results)), homes, add,
        finish,
    )  # fmt: skip


def _with_own_gradients(step: Step) -> Step:
    """The step with gradients that nothing else uses: they are summed up as soon as a part has made them."""

    def run(shared, local, batch, key):  # noqa: ANN001, ANN202
        gradients, local, outputs = step(shared, local, batch, key)
        return [jnp.copy(g) for g in gradients], local, outputs

    return run


def _grouped(values: Sequence, sizes: Sequence[int]) -> list[list]:
    """Values in groups of the given sizes, the rest last."""
    groups, start = [], 0
    for size in sizes:
        groups.append(list(values[start : start + size]))
        start += size
    return [*groups, list(values[start:])]


def _part(segment: Segment, device: Device, plan: Plan, shared: set, gradients: set) -> Part:
    evaluate = core.jaxpr_as_fun(passes.optimise(segment.closed, device.platform))
    axes = tuple(None if v in shared else 0 for v in segment.inputs)
    is_gradient = [v in gradients for v in segment.outputs]

    spread = plan.over(1)
    mapped = spread.mapped(evaluate, in_axes=axes)

    def call(*inputs: jax.Array) -> list[jax.Array]:
        made = list(mapped(*inputs))
        if plan.replicas == 1:
            return made
        return [replicated.reduced(plan, spread, o.sum(0)) if g else o for o, g in zip(made, is_gradient, strict=True)]

    return Part(segment.inputs, segment.outputs, jax.jit(call), device)


def _homes(variables: Sequence[core.Var], parts: Sequence[Part], default: Device) -> tuple[Device, ...]:
    """The device of the first part that uses each value."""
    return tuple(next((p.device for p in parts if v in p.inputs), default) for v in variables)


def _maker(value: object, parts: Sequence[Part]) -> Device:
    return next((p.device for p in parts if value in p.outputs), parts[0].device)


def _updates(
    program: Program, homes: Sequence[Device], gradients: Sequence[Device], devices: Sequence[Device],
    shared: Sequence[core.Var], parts: Sequence[Part],
) -> tuple[tuple[UpdatePart, ...], tuple[Device, ...]]:  # fmt: skip
    """The weight update cut by the stage that owns each value, and the owners."""
    assert program.update is not None
    update = program.update
    counts = [len(program.shared), len(program.local), len(gradients)]

    def flat(*values: jax.Array) -> list[jax.Array]:
        first, second, third, _ = _grouped(values, counts)
        with tracing_for(ALONE):
            new, written = update(first, second, third)
        if written:
            raise UnsupportedError(
                f"The update of {program.name} assigns state that its steps assign too; stages on several devices "
                "cannot share it. Run with one JAX device."
            )
        return list(new)

    shapes = jax.eval_shape(program.step, *_abstract(program), jax.random.key(0))[0]
    closed = jax.make_jaxpr(flat)(*[s.abstract for s in program.shared], *[s.abstract for s in program.local], *shapes)
    used = {v for p in parts for v in p.inputs}
    owners = list(homes)
    needs = []
    for index, variable in enumerate(shared):
        wanted = [i == index for i in range(len(shared))]
        _, inputs = dce_jaxpr(closed.jaxpr, wanted)
        needs.append(inputs)
        touched = [gradients[i] for i, needed in enumerate(inputs[-len(gradients) :]) if needed]
        if variable not in used and len(set(touched)) == 1:
            owners[index] = touched[0]
    made = []
    for device in dict.fromkeys(devices):
        mine = [o is device for o in owners]
        piece, inputs = dce_jaxpr(closed.jaxpr, mine)
        first, second, third, _ = _grouped(inputs, counts)
        call = jax.jit(core.jaxpr_as_fun(core.ClosedJaxpr(piece, closed.consts)))
        made.append(UpdatePart(_where(first), _where(second), _where(third), _where(mine), call, device))
    return tuple(made), tuple(owners)


def _abstract(program: Program) -> list[list[jax.ShapeDtypeStruct]]:
    return [[s.abstract for s in group] for group in (program.shared, program.local, program.batch)]


def _where(flags: Sequence[bool]) -> tuple[int, ...]:
    return tuple(i for i, flag in enumerate(flags) if flag)


def _check_local_state(program: Program, before: Sequence, after: Sequence, segments: Sequence[Segment]) -> None:
    """A stage must have assigned its state before an earlier-or-equal part of the next micro-batch reads it."""
    for slot, old, new in zip(program.local, before, after, strict=True):
        read = min((s.index for s in segments if old in s.inputs), default=len(segments))
        made = max((s.index for s in segments if new in s.outputs), default=0)
        if made > read:
            raise UnsupportedError(
                f"{slot.name} is read in part {read} of the pipeline and assigned in the later part {made}: stages on "
                "several devices cannot overlap then. Run with one JAX device, or keep it within one stage."
            )


def sharding_of(device: Device) -> SingleDeviceSharding:
    """Where a value of one stage lives."""
    return SingleDeviceSharding(device)
