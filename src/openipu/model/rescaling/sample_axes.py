"""Which axis of every value in a jaxpr the samples of a micro-batch are on."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
from jax.extend import core


@attrs.frozen
class Place:
    """Where samples are: on an axis, or within it where a reshape has merged axes.

    Attributes:
      axis: the axis.
      lead: how many times the samples are repeated in it, outside of them.
    """

    axis: int
    lead: int = 1


Axes = dict[Any, Place]
_Places = list[Place | None]


def places_of(jaxpr: Any, given: Sequence[Place | None], wanted: Sequence[Place | None] = ()) -> Axes:
    """The samples' place in every value that has one.

    Args:
      jaxpr: what computes with samples.
      given: their places in its arguments.
      wanted: their places in its results, where whoever uses these knows more than the arguments say.
    """
    axes: Axes = {v: place for v, place in zip(jaxpr.invars, given, strict=True) if place is not None}
    known = -1
    # Constants, random numbers and masks learn it from what they are combined with, and others from them.
    while known < len(axes):
        known = len(axes)
        for equation in jaxpr.eqns:
            for variable, place in zip(equation.outvars, _outputs(equation, axes), strict=True):
                if place is not None:
                    axes.setdefault(variable, place)
        for variable, place in zip(jaxpr.outvars, wanted, strict=False):
            if place is not None and not isinstance(variable, core.Literal):
                axes.setdefault(variable, place)
        for equation in reversed(jaxpr.eqns):
            _inferred(equation, axes)
    return axes


def nested(equation: Any, axes: Axes) -> dict[int, tuple[_Places, _Places]]:
    """The places of samples in arguments and results of the jaxprs an equation holds, by the identity of these."""
    inputs, made = _read(equation, axes), [axes.get(v) for v in equation.outvars]
    params = equation.params
    match equation.primitive.name:
        case "scan":
            carried = params["num_carry"]
            results = [*made[:carried], *(_shifted(place, -1) for place in made[carried:])]
            return {id(params["jaxpr"]): (_scan_inputs(equation, inputs), results)}
        case "while":
            start, consts = params["cond_nconsts"], params["body_nconsts"]
            carry = inputs[start + consts :]
            return {
                id(params["body_jaxpr"]): ([*inputs[start : start + consts], *carry], made),
                id(params["cond_jaxpr"]): ([*inputs[:start], *carry], []),
            }
        case "cond":
            return {id(branch): (inputs[1:], made) for branch in params["branches"]}
    called = _called(equation)
    return {} if called is None else {id(called): (inputs, made)}


def _called(equation: Any) -> Any:
    """The jaxpr that an equation calls with its own operands."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        found = equation.params.get(name)
        if isinstance(found, (core.ClosedJaxpr, core.Jaxpr)):
            inner = getattr(found, "jaxpr", found)
            if len(inner.invars) == len(equation.invars) and not equation.primitive.name.startswith("reduce"):
                return found
    return None


def _read(equation: Any, axes: Axes) -> _Places:
    return [None if isinstance(v, core.Literal) else axes.get(v) for v in equation.invars]


def _outputs(equation: Any, axes: Axes) -> _Places:
    inputs = _read(equation, axes)
    if not any(inputs):
        return [None] * len(equation.outvars)
    name = equation.primitive.name
    if name == "scan":
        return _scan(equation, inputs)
    if name == "while":
        # What a loop carries keeps its shape.
        return inputs[len(inputs) - len(equation.outvars) :]
    if name == "cond":
        branch = equation.params["branches"][0].jaxpr
        return _results(branch, inputs[1:])
    called = _called(equation)
    if called is not None:
        return _results(getattr(called, "jaxpr", called), inputs)
    rule = _RULES.get(name, _same)
    return [rule(equation, inputs, out) for out in equation.outvars]


def _results(jaxpr: Any, given: _Places) -> _Places:
    axes = places_of(jaxpr, given)
    return [None if isinstance(v, core.Literal) else axes.get(v) for v in jaxpr.outvars]


def _scan_inputs(equation: Any, inputs: _Places) -> _Places:
    fixed = equation.params["num_consts"] + equation.params["num_carry"]
    return [*inputs[:fixed], *(_shifted(place, -1) for place in inputs[fixed:])]


def _scan(equation: Any, inputs: _Places) -> _Places:
    carried = equation.params["num_carry"]
    made = _results(equation.params["jaxpr"].jaxpr, _scan_inputs(equation, inputs))
    return [*made[:carried], *(_shifted(place, 1) for place in made[carried:])]


def _shifted(place: Place | None, by: int) -> Place | None:
    # Samples on the axis that is scanned over are not on any axis of the body's.
    return None if place is None or place.axis + by < 0 else attrs.evolve(place, axis=place.axis + by)


def _same(equation: Any, inputs: _Places, out: Any) -> Place | None:
    """Elementwise, and whatever keeps the axis: padding, slices, windows, sorting."""
    for variable, place in zip(equation.invars, inputs, strict=True):
        if place is not None and variable.aval.shape == out.aval.shape:
            return place
    for variable, place in zip(equation.invars, inputs, strict=True):
        shape = variable.aval.shape
        if place is not None and len(shape) == len(out.aval.shape) and shape[place.axis] == out.aval.shape[place.axis]:
            return place
    return None


def _reduce(equation: Any, inputs: _Places, out: Any) -> Place | None:
    place = next(p for p in inputs if p is not None)
    axes = equation.params["axes"]
    if place.axis in axes:
        return None
    return attrs.evolve(place, axis=place.axis - sum(a < place.axis for a in axes))


def _broadcast(equation: Any, inputs: _Places, out: Any) -> Place | None:
    place = inputs[0]
    if place is None or equation.invars[0].aval.shape[place.axis] == 1:
        return None
    return attrs.evolve(place, axis=equation.params["broadcast_dimensions"][place.axis])


def _stack(equation: Any, inputs: _Places, out: Any) -> Place | None:
    place = next(p for p in inputs if p is not None)
    return attrs.evolve(place, axis=place.axis + (equation.params["axis"] <= place.axis))


def _transpose(equation: Any, inputs: _Places, out: Any) -> Place | None:
    place = inputs[0]
    return None if place is None else attrs.evolve(place, axis=equation.params["permutation"].index(place.axis))


def _reshape(equation: Any, inputs: _Places, out: Any) -> Place | None:
    place = inputs[0]
    if place is None:
        return None
    before, after = equation.invars[0].aval.shape, out.aval.shape
    position = math.prod(before[: place.axis]) * place.lead
    lead = 1
    for axis, size in enumerate(after):
        if size > 1 and lead <= position < lead * size and position % lead == 0:
            return Place(axis, position // lead)
        lead *= size
    return None


def _squeeze(equation: Any, inputs: _Places, out: Any) -> Place | None:
    place = inputs[0]
    dropped = [d % len(equation.invars[0].aval.shape) for d in equation.params["dimensions"]]
    if place is None or place.axis in dropped:
        return None
    return attrs.evolve(place, axis=place.axis - sum(d < place.axis for d in dropped))


def _expand(equation: Any, inputs: _Places, out: Any) -> Place | None:
    place = inputs[0]
    if place is None:
        return None
    added = {d % len(out.aval.shape) for d in equation.params["dimensions"]}
    kept = [axis for axis in range(len(out.aval.shape)) if axis not in added]
    return attrs.evolve(place, axis=kept[place.axis])


def _dot(equation: Any, inputs: _Places, out: Any) -> Place | None:
    (contracting, batch) = equation.params["dimension_numbers"]
    ranks = [len(v.aval.shape) for v in equation.invars]
    free = [
        [d for d in range(rank) if d not in contracting[side] and d not in batch[side]]
        for side, rank in enumerate(ranks)
    ]
    for side, place in enumerate(inputs):
        if place is None:
            continue
        if place.axis in batch[side]:
            return attrs.evolve(place, axis=batch[side].index(place.axis))
        if place.axis in free[side]:
            before = len(batch[0]) + (len(free[0]) if side else 0)
            return attrs.evolve(place, axis=before + free[side].index(place.axis))
    return None


def _convolution(equation: Any, inputs: _Places, out: Any) -> Place | None:
    numbers = equation.params["dimension_numbers"]
    field, kernel = inputs
    if field is not None and field.axis == numbers.lhs_spec[0]:
        return attrs.evolve(field, axis=numbers.out_spec[0])
    if kernel is not None and kernel.axis == numbers.rhs_spec[0]:
        return attrs.evolve(kernel, axis=numbers.out_spec[1])
    # Samples are the channels that are summed over: the gradient of weights.
    return None


def _gather(equation: Any, inputs: _Places, out: Any) -> Place | None:
    numbers = equation.params["dimension_numbers"]
    operand, indices = inputs
    outer = [axis for axis in range(len(out.aval.shape)) if axis not in numbers.offset_dims]
    if indices is not None and indices.axis < len(outer):
        return attrs.evolve(indices, axis=outer[indices.axis])
    gone = {*numbers.collapsed_slice_dims, *getattr(numbers, "operand_batching_dims", ())}
    kept = [d for d in range(len(equation.invars[0].aval.shape)) if d not in gone]
    if operand is not None and operand.axis in kept:
        return attrs.evolve(operand, axis=numbers.offset_dims[kept.index(operand.axis)])
    return None


def _first(equation: Any, inputs: _Places, out: Any) -> Place | None:
    """Shaped as its first operand: scatters, updates of slices."""
    return inputs[0]


_Rule = Callable[[Any, _Places, Any], Place | None]
_REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin")
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(("scatter", "scatter-add", "scatter_add", "scatter-mul", "scatter-min", "scatter-max",
                     "dynamic_update_slice"), _first),
    "broadcast_in_dim": _broadcast,
    "conv_general_dilated": _convolution,
    "dot_general": _dot,
    "expand_dims": _expand,
    "gather": _gather,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "stack": _stack,
    "transpose": _transpose,
}  # fmt: skip


def _inferred(equation: Any, axes: Axes) -> None:
    """What an equation says of its operands: those shaped as an elementwise result have their samples where it has."""
    called = _called(equation)
    if called is not None:
        jaxpr = getattr(called, "jaxpr", called)
        inside = places_of(jaxpr, _read(equation, axes), [axes.get(v) for v in equation.outvars])
        for variable, inner in zip(equation.invars, jaxpr.invars, strict=True):
            if inner in inside and not isinstance(variable, core.Literal):
                axes.setdefault(variable, inside[inner])
        return
    rule = _RULES.get(equation.primitive.name, _same)
    if rule not in (_same, _first):
        return
    for out in equation.outvars:
        place = axes.get(out)
        if place is None:
            continue
        for variable in _operands(equation):
            if variable.aval.shape == out.aval.shape:
                axes.setdefault(variable, place)


def _operands(equation: Any) -> Iterator[Any]:
    return (v for v in equation.invars if not isinstance(v, core.Literal))
