"""Compute what is left of a program's values."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from openipu.compiler.passes.jaxprs import Atom, aval_of, traced, with_equations
from openipu.compiler.passes.margins.extents import Extents, Known, extents_of, is_elementwise, kept_extents
from openipu.compiler.passes.margins.windows import convolution_space, pooling_sides, scattered_sides
from openipu.compiler.passes.shapes import ELEMENTWISE


def run(closed_jaxpr: ClosedJaxpr, nonzero: Known, needed: Known) -> ClosedJaxpr:
    """Returns the jaxpr with less to compute; itself if no convolution has less."""
    trimmer = _Trimmer(closed_jaxpr, nonzero, needed)
    convolutions = [eqn for eqn in closed_jaxpr.eqns if eqn.primitive.name == "conv_general_dilated"]
    if all(trimmer.kept(eqn.outvars[0]) == aval_of(eqn.outvars[0]).shape for eqn in convolutions):
        return closed_jaxpr
    return trimmer.run()


class _Trimmer:
    """Equations emitted so far, and what stands for each of the program's values: that, or its beginning.

    What is missing of it are zeros, or is not read.
    """

    def __init__(self, closed_jaxpr: ClosedJaxpr, nonzero: Known, needed: Known) -> None:
        self._source, self._nonzero, self._needed = closed_jaxpr, nonzero, needed
        self._equations: list[JaxprEqn] = []
        self._constvars, self._consts = list(closed_jaxpr.jaxpr.constvars), list(closed_jaxpr.consts)
        self._values: dict[Var, Atom] = {}
        self._sized: dict[tuple[Var, Extents], Atom] = {}

    def run(self) -> ClosedJaxpr:
        jaxpr = self._source.jaxpr
        for eqn in jaxpr.eqns:
            rule = _RULES.get(eqn.primitive.name)
            made = rule(self, eqn) if rule else None
            if made is None:
                whole = [self.sized(atom, aval_of(atom).shape) for atom in eqn.invars]
                self._equations.append(eqn.replace(invars=whole))
            else:
                self._values[eqn.outvars[0]] = made
        outvars = [self.sized(atom, aval_of(atom).shape) for atom in jaxpr.outvars]
        done = with_equations(jaxpr.replace(constvars=self._constvars), self._equations, outvars)
        return ClosedJaxpr(done, self._consts)

    def kept(self, atom: Atom) -> Extents:
        """How much of a value is to be computed."""
        return kept_extents(self._needed, self._nonzero, atom)

    def nonzero(self, atom: Atom) -> Extents:
        """How much of a value is not known to be zero."""
        return extents_of(self._nonzero, atom)

    def sized(self, atom: Atom, extents: Extents) -> Atom:
        """So much of a value."""
        if isinstance(atom, Literal) or not extents:
            return atom
        value = self._values.get(atom, atom)
        have = aval_of(value).shape
        if have == extents:
            return value
        if (atom, extents) not in self._sized:
            config = [(0, want - n, 0) for n, want in zip(have, extents, strict=True)]
            self._sized[atom, extents] = (
                self.emit(lambda x: lax.slice(x, (0,) * x.ndim, extents), value)
                if all(high <= 0 for _, high, _ in config)
                else self.emit(lambda x: lax.pad(x, jnp.zeros((), x.dtype), config), value)
            )
        return self._sized[atom, extents]

    def emit(self, function: Callable[..., Any], *atoms: Atom) -> Atom:
        """Adds the equations of `function(*atoms)` and returns its result."""
        made = traced(function, *atoms)
        self._equations += made.equations
        self._constvars += made.constvars
        self._consts += made.consts
        return made.results[0]


def _elementwise(trimmer: _Trimmer, eqn: JaxprEqn) -> Atom | None:
    out = eqn.outvars[0]
    extents = trimmer.kept(out)
    if extents == aval_of(out).shape or not is_elementwise(eqn):
        return None
    given = [trimmer.sized(atom, extents) if aval_of(atom).shape else atom for atom in eqn.invars]
    return trimmer.emit(lambda *arrays: eqn.primitive.bind(*arrays, **eqn.params), *given)


def _broadcast(trimmer: _Trimmer, eqn: JaxprEqn) -> Atom | None:
    extents, shape = trimmer.kept(eqn.outvars[0]), aval_of(eqn.invars[0]).shape
    if extents == aval_of(eqn.outvars[0]).shape or len(eqn.invars) > 1:
        return None
    dims = eqn.params["broadcast_dimensions"]
    given = trimmer.sized(eqn.invars[0], tuple(min(n, extents[dim]) for n, dim in zip(shape, dims, strict=True)))
    return trimmer.emit(lambda x: lax.broadcast_in_dim_p.bind(x, **{**eqn.params, "shape": extents}), given)


def _reduce_window(trimmer: _Trimmer, eqn: JaxprEqn) -> Atom | None:
    extents, sides = trimmer.kept(eqn.outvars[0]), pooling_sides(eqn)
    if sides is None or 0 in extents:
        return None
    columns = list(zip(sides, extents, strict=True))
    read = tuple(side.read(windows, size) for (side, size), windows in columns)
    if read == aval_of(eqn.invars[0]).shape:
        return None
    padding = tuple(
        (side.low, side.high(windows, size, n)) for ((side, size), windows), n in zip(columns, read, strict=True)
    )
    params = {**eqn.params, "padding": padding}
    return trimmer.emit(lambda x: eqn.primitive.bind(x, **params), trimmer.sized(eqn.invars[0], read))


def _convolution(trimmer: _Trimmer, eqn: JaxprEqn) -> Atom | None:
    (lhs, rhs), extents = eqn.invars, list(trimmer.kept(eqn.outvars[0]))
    left, right = list(aval_of(lhs).shape), list(aval_of(rhs).shape)
    if 0 in (*trimmer.nonzero(lhs), *trimmer.nonzero(rhs), *extents):
        return None
    padding = []
    for space in convolution_space(eqn):
        kernel = right[space.right] = trimmer.nonzero(rhs)[space.right]
        taken = space.side.taken(extents[space.out], kernel)
        left[space.left] = min(taken, trimmer.nonzero(lhs)[space.left])
        padding.append((space.side.low, space.side.high(extents[space.out], kernel, left[space.left])))
    if 0 in left or (tuple(left), tuple(right)) == tuple(aval_of(atom).shape for atom in eqn.invars):
        return None
    params = {**eqn.params, "padding": tuple(padding)}
    given = trimmer.sized(lhs, tuple(left)), trimmer.sized(rhs, tuple(right))
    return trimmer.emit(lambda x, w: lax.conv_general_dilated_p.bind(x, w, **params), *given)


def _select_and_scatter_add(trimmer: _Trimmer, eqn: JaxprEqn) -> Atom | None:
    (gradient, operand), sides = eqn.invars, scattered_sides(eqn)
    windows = trimmer.nonzero(gradient)
    if sides is None or 0 in windows:
        return None
    covered = tuple(side.read(count, size) for (side, size), count in zip(sides, windows, strict=True))
    if covered == aval_of(operand).shape:
        return None
    given = trimmer.sized(gradient, windows), trimmer.sized(operand, covered)
    return trimmer.emit(lambda y, x: lax.select_and_scatter_add_p.bind(y, x, **eqn.params), *given)


def _reduce_sum(trimmer: _Trimmer, eqn: JaxprEqn) -> Atom | None:
    source, axes = eqn.invars[0], eqn.params["axes"]
    shape, nonzero = aval_of(source).shape, trimmer.nonzero(source)
    # Zeros need not be summed.
    left = tuple(n if dim in axes else whole for dim, (n, whole) in enumerate(zip(nonzero, shape, strict=True)))
    if left == shape or 0 in nonzero:
        return None
    return trimmer.emit(lambda x: lax.reduce_sum_p.bind(x, **eqn.params), trimmer.sized(source, left))


_RULES: dict[str, Callable[[_Trimmer, JaxprEqn], Atom | None]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    "broadcast_in_dim": _broadcast,
    **dict.fromkeys(("reduce_window_max", "reduce_window_min", "reduce_window_sum"), _reduce_window),
    "conv_general_dilated": _convolution,
    "select_and_scatter_add": _select_and_scatter_add,
    "reduce_sum": _reduce_sum,
}
