"""A traced program as if its micro-batch were of another size: the same operations on longer or shorter arrays.

Front ends capture with static shapes, so a program for another micro-batch would have to be captured again by a script
that asks for it. Predictions only read shapes, so it is enough to find the axis of every value that the samples are
on, and to scale it. The result is priced, never run.
"""

import math
from collections.abc import Sequence
from typing import Any

import attrs
from jax.extend import core

from openipu.compiler.passes.jaxprs import with_equations
from openipu.jax_boundary import fresh
from openipu.model.captured import Traced
from openipu.model.rescaling.sample_axes import Axes, Place, nested, places_of


def rescaled(traced: Traced, factor: float) -> Traced:
    """A program with a micro-batch of `factor` times the samples.

    Args:
      traced: the program.
      factor: must make the size of a micro-batch a whole number.
    """
    program = traced.program
    size = next(slot.shape[0] for slot in program.batch if slot.shape)
    batched = [bool(slot.shape) and slot.shape[0] == size for slot in program.batch]
    before = len(program.shared) + len(program.local)
    given: list[Place | None] = [None] * len(traced.step.jaxpr.invars)
    for number, samples in enumerate(batched):
        if samples:
            given[before + number] = Place(0)
    slots = tuple(
        attrs.evolve(slot, shape=(_scaled(slot.shape[0], factor), *slot.shape[1:])) if samples else slot
        for slot, samples in zip(program.batch, batched, strict=True)
    )
    step = core.ClosedJaxpr(_rebuilt(traced.step.jaxpr, given, factor), traced.step.consts)
    return attrs.evolve(traced, program=attrs.evolve(program, batch=slots), step=step)


def _rebuilt(jaxpr: Any, given: Sequence[Place | None], factor: float, wanted: Sequence[Place | None] = ()) -> Any:
    """A jaxpr whose values have the samples' axis scaled."""
    axes = places_of(jaxpr, given, wanted)
    new: dict[Any, Any] = {}

    def scaled(atom: Any) -> Any:
        if isinstance(atom, core.Literal) or axes.get(atom) is None:
            return atom
        if atom not in new:
            new[atom] = fresh(_aval(atom.aval, axes[atom], factor))
        return new[atom]

    equations = []
    for equation in jaxpr.eqns:
        equations.append(
            equation.replace(
                invars=[scaled(v) for v in equation.invars],
                outvars=[scaled(v) for v in equation.outvars],
                params=_params(equation, axes, factor),
            )
        )
    made = with_equations(jaxpr, equations, [scaled(v) for v in jaxpr.outvars])
    return made.replace(invars=[scaled(v) for v in jaxpr.invars])


def _params(equation: Any, axes: Axes, factor: float) -> dict[str, Any]:
    """The parameters with the jaxprs in them scaled as well."""
    inside = nested(equation, axes)
    if not inside:
        return equation.params

    def visit(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(visit(item) for item in value)
        if id(value) in inside:
            given, wanted = inside[id(value)]
            if isinstance(value, core.ClosedJaxpr):
                return core.ClosedJaxpr(_rebuilt(value.jaxpr, given, factor, wanted), value.consts)
            return _rebuilt(value, given, factor, wanted)
        return value

    return {name: visit(value) for name, value in equation.params.items()}


def _aval(aval: Any, place: Place, factor: float) -> Any:
    shape = list(aval.shape)
    shape[place.axis] = _scaled(shape[place.axis], factor)
    return aval.update(shape=tuple(shape))


def _scaled(size: int, factor: float) -> int:
    return max(1, math.floor(size * factor + 0.5))
