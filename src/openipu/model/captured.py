"""A program as the model sees it: its step and its update as kernels, its values by what they are for."""

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import jax
from jax.extend import core

from openipu.compiler.execution import traced_step
from openipu.compiler.segments import levels_of
from openipu.jax_boundary import dce_jaxpr
from openipu.model.estimate import Pass
from openipu.model.flatten import Flat, flatten
from openipu.model.machine import Machine
from openipu.model.nodes import Node, nodes
from openipu.program import Plan, Program, Slot, marks
from openipu.program.replica import ALONE, tracing_for


@attrs.frozen(eq=False)
class Traced:
    """The functions of a program as jaxprs, before any pass.

    Attributes:
      program, plan: what was traced.
      step: one step of one replica.
      update: one weight update; None when nothing is trained.
      gradients: how many of the step's results are gradients.
      known: its kernels, by what their prices depend on.
    """

    program: Program
    plan: Plan
    step: core.ClosedJaxpr
    update: core.ClosedJaxpr | None
    gradients: int
    known: "dict[tuple, Captured]" = attrs.field(init=False, factory=dict)


@attrs.frozen(eq=False)
class Captured:
    """A program's kernels and values.

    Attributes:
      traced: what they come from.
      flat, kernels: of the step.
      update_flat, update_kernels: of the update; None and empty when nothing is trained.
      weights, state, local, batch: numbers of the step's inputs: what it reads of shared values, what only the update
        does, what steps write, what is fed. Those of `state` are indices of shared slots.
      gradients: numbers of the gradients; None for one that is a constant.
      results: numbers of what goes back to the host.
      homes: the stage of each shared slot.
    """

    traced: Traced
    flat: Flat
    kernels: tuple[Node, ...]
    update_flat: Flat | None
    update_kernels: tuple[Node, ...]
    weights: tuple[int, ...]
    state: tuple[int, ...]
    local: tuple[int, ...]
    batch: tuple[int, ...]
    gradients: tuple[int | None, ...]
    results: tuple[int, ...]
    homes: tuple[int, ...]

    @property
    def program(self) -> Program:
        """The program."""
        return self.traced.program


def trace(program: Program, plan: Plan) -> Traced:
    """Traces a program with the names of its layers, convolutions still convolutions."""
    # JAX remembers what it traced by the function: a new one is traced again, with names.
    fresh = attrs.evolve(program, step=lambda *arguments: program.step(*arguments))
    with jax.enable_x64(True), marks.naming():
        # Rounding at random is hardware's; the pass that imitates it is no work of an IPU.
        step, structure = traced_step(fresh, plan.over(1), stochastic_rounding=False)
    return completed(program, plan, step, structure)


def completed(program: Program, plan: Plan, step: core.ClosedJaxpr, structure: Any) -> Traced:
    """A program whose step was traced already, with names: the update is traced too.

    Args:
      program, plan: what was traced.
      step, structure: see `traced_step`.
    """
    gradients = structure.children()[0].num_leaves
    update = None
    with jax.enable_x64(True), marks.naming():
        if (update_rule := program.update) is not None:
            given = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in step.out_avals[:gradients]]
            slots = [[s.abstract for s in group] for group in (program.shared, program.local)]
            with tracing_for(ALONE):
                update = jax.make_jaxpr(lambda *arguments: update_rule(*arguments))(*slots, given)
            update = _needed(update)
        return Traced(program, plan, _needed(step), update, gradients)


def _needed(closed: core.ClosedJaxpr) -> core.ClosedJaxpr:
    used, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    return core.ClosedJaxpr(used, closed.consts)


def capture(traced: Traced, machine: Machine) -> Captured:
    """The kernels of a traced program on an IPU; made once for all options that change no price."""
    if machine.prices not in traced.known:
        traced.known[machine.prices] = _captured(traced, machine)
    return traced.known[machine.prices]


def _captured(traced: Traced, machine: Machine) -> Captured:
    program, step = traced.program, traced.step
    parts = max(1, machine.stages) * (2 if machine.training else 1)
    flat = flatten(step, levels_of(step.jaxpr, parts)[0])
    shared, local, batch = _grouped(flat.inputs, (program.shared, program.local, program.batch))
    read = {v for one in flat.instructions for v in one.inputs} | {v for v in flat.outputs if v is not None}
    made = tuple(nodes(flat, machine, shared))
    results = [v for v in flat.outputs[traced.gradients + len(local) :] if v is not None]
    homes = _homes(shared, made, flat)
    update_flat, update_kernels = None, ()
    if traced.update is not None:
        update_flat = flatten(traced.update)
        makers = {v: node.stage for node in made for v in node.writes}
        where = [makers.get(flat.values[v].root, 0) if v is not None else 0 for v in flat.outputs[: traced.gradients]]
        count = len(program.shared) + len(program.local)
        known = [homes.get(i, -1) for i in range(len(program.shared))]
        stages = [*known, *[-1] * (count - len(known)), *where]
        update_kernels = tuple(nodes(update_flat, machine, update_flat.inputs, True, stages))
        update_kernels = tuple(_staged(node) for node in update_kernels)
        homes |= _state_homes(update_flat, homes, where, len(program.shared), count)
    return Captured(
        traced=traced,
        flat=flat,
        kernels=made,
        update_flat=update_flat,
        update_kernels=update_kernels,
        weights=tuple(v for v in shared if v in read),
        state=tuple(i for i, v in enumerate(shared) if v not in read),
        local=tuple(local),
        batch=tuple(batch),
        gradients=flat.outputs[: traced.gradients],
        results=tuple(dict.fromkeys(results)),
        homes=tuple(max(0, homes.get(i, 0)) for i in range(len(program.shared))),
    )


def _staged(node: Node) -> Node:
    node.stage = max(0, node.stage)
    return node


def _grouped(numbers: Sequence[int], groups: Iterable[Sequence[Slot]]) -> list[tuple[int, ...]]:
    found, start = [], 0
    for group in groups:
        found.append(tuple(numbers[start : start + len(group)]))
        start += len(group)
    return found


def _homes(shared: Sequence[int], made: Sequence[Node], flat: Flat) -> dict[int, int]:
    """The stage that first reads each shared value, by its index."""
    first: dict[int, int] = {}
    for node in made:
        for v in node.reads:
            if node.phase is Pass.FORWARD:
                first.setdefault(v, node.stage)
    for node in made:
        for v in node.reads:
            first.setdefault(v, node.stage)
    return {i: first[v] for i, v in enumerate(shared) if flat.values[v].root == v and v in first}


def _state_homes(flat: Flat, homes: dict[int, int], where: Sequence[int], shared: int, count: int) -> dict[int, int]:
    """The stage of optimizer state: that of the gradient it is updated with."""
    stage = {v: s for v, s in zip(flat.inputs[count:], where, strict=True)}
    stage |= {flat.inputs[i]: s for i, s in homes.items()}
    for one in flat.instructions:
        known = [stage[v] for v in one.inputs if v in stage]
        if known:
            stage.update(dict.fromkeys(one.outputs, max(known)))
    return {
        i: stage[made]
        for i, made in enumerate(flat.outputs[:shared])
        if i not in homes and made is not None and made in stage
    }
