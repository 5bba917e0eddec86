"""Micro-batches as lanes: those that see the same weights are computed side by side, as one larger batch.

A step is cut into three by what its parts depend on:

- *ticks*: local state whose next value follows from itself alone (random seeds, counters, what is never written). A
  short loop makes the value that each micro-batch begins with;
- *lanes*: everything that depends on inputs, weights, keys and ticks only, which is nearly all of a step. It is mapped
  over the micro-batches, and gradients are summed where they arise;
- *tail*: what depends on local state that inputs change (metrics, running statistics). A loop goes over the
  micro-batches in their order, with what the lanes made.

So the numbers are those of one micro-batch after another. A step whose gradients or large values depend on such state,
that calls the host, or whose branches depend on data is not folded.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from openipu.compiler.native import targets
from openipu.compiler.passes import dead, lane_sums
from openipu.compiler.passes.jaxprs import Atom, subjaxprs

# What the values of all lanes may take together. Beyond it there is no gain: a micro-batch that large keeps all cores
# busy, and more of them at once no longer fit into caches.
_MOST_BYTES = 64 << 20
# Elements that a tick or the tail of one micro-batch may make: both run in sequence.
_MOST_IN_SEQUENCE = 1 << 16
# Copies of a short loop's body that XLA gets to see at once.
_MOST_UNROLLED = 256
# Under `vmap` a loop or a branch that depends on data becomes one that computes for everybody, and a call of the host
# one that has no order. JAX's rule for XLA's generator draws other numbers.
_NOT_MAPPED = ("while", "cond", "pure_callback", "io_callback", "debug_callback", "rng_bit_generator")
_HEAVY = ("dot_general", "conv_general_dilated", "scan", "sort", *targets.NAMES)


@attrs.frozen(eq=False)
class Folding:
    """A step cut into its parts.

    Attributes:
      fixed, ticking, carried: the indices of local values that stay, that follow from themselves, that inputs change.
      tick: (*shared, *fixed, *ticking) -> ticking.
      lane: (*shared, *fixed, *ticking, *batch, key) -> (*gradients, *early outputs, *seen by the tail).
      tail: (*shared, *fixed, *ticking, *carried, *seen) -> (*carried, *late outputs).
      gradients: how many there are.
      late: for each output, whether the tail makes it.
      bytes: what all values of one lane take together.
    """

    fixed: tuple[int, ...]
    ticking: tuple[int, ...]
    carried: tuple[int, ...]
    tick: ClosedJaxpr
    lane: ClosedJaxpr
    tail: ClosedJaxpr
    gradients: int
    late: tuple[bool, ...]
    bytes: int

    def lanes(self, most: int) -> int:
        """How many of at most so many micro-batches to compute at once: a number that divides them."""
        # Inference keeps nothing for a backward pass: what a kernel makes should still be in caches for the next one.
        limit = _MOST_BYTES if self.gradients else _MOST_BYTES // 2
        within = min(most, limit // max(self.bytes, 1))
        return next((n for n in range(within, 1, -1) if most % n == 0), 1)


@attrs.frozen
class _Groups:
    """The variables of a step by what they are."""

    shared: Sequence[Var]
    local: Sequence[Var]
    batch: Sequence[Var]
    key: Var
    gradients: Sequence[Atom]
    written: Sequence[Atom]
    outputs: Sequence[Atom]


def fold(step: ClosedJaxpr, counts: tuple[int, int, int], structure: Any) -> Folding | None:
    """A step cut so that micro-batches can be lanes; None if it cannot be.

    Args:
      step: of one replica, as it will be compiled.
      counts: how many shared values, local values and inputs it takes.
      structure: of its results: gradients, local values, outputs.
    """
    jaxpr = step.jaxpr
    if jaxpr.effects or _contains(jaxpr.eqns, _NOT_MAPPED):
        return None
    groups = _groups(jaxpr, counts, structure)
    needs = _Needs(groups, jaxpr.eqns)
    ticking = needs.closed()
    carried = [i for i in range(len(groups.local)) if i not in ticking]
    fixed = [i for i in ticking if groups.written[i] is groups.local[i]]
    ticking = [i for i in ticking if i not in fixed]
    late = needs.mask(carried)
    if any(needs.of(atom) & late for atom in groups.gradients):
        return None
    tail_equations = [e for e in jaxpr.eqns if needs.of_equation(e) & late]
    lane_equations = [e for e in jaxpr.eqns if not needs.of_equation(e) & late]
    is_late = [bool(needs.of(atom) & late) for atom in groups.outputs]
    early_outputs = [atom for atom, is_it in zip(groups.outputs, is_late, strict=True) if not is_it]
    results = [groups.written[i] for i in carried]
    results += [atom for atom, is_it in zip(groups.outputs, is_late, strict=True) if is_it]
    seen = _seen(tail_equations, results, [groups.local[i] for i in carried])
    common = [*groups.shared, *(groups.local[i] for i in (*fixed, *ticking))]
    # What the tail takes of these it is given anyway.
    seen = [v for v in seen if v not in set(common) and v not in jaxpr.constvars]

    def part(takes: Sequence[Var], equations: list[JaxprEqn], gives: Sequence[Atom]) -> ClosedJaxpr:
        info = jaxpr.debug_info.with_unknown_names()
        body = Jaxpr(jaxpr.constvars, list(takes), list(gives), equations, debug_info=info)
        return dead.run(ClosedJaxpr(body, step.consts))

    tick = part(common, jaxpr.eqns, [groups.written[i] for i in ticking])
    tail = part([*common, *(groups.local[i] for i in carried), *seen], tail_equations, results)
    if any(_contains(p.eqns, _HEAVY) or _elements(p) > _MOST_IN_SEQUENCE for p in (tick, tail)):
        return None
    lane = part([*common, *groups.batch, groups.key], lane_equations, [*groups.gradients, *early_outputs, *seen])
    size = sum(math.prod(v.aval.shape) * v.aval.dtype.itemsize for e in lane.eqns for v in e.outvars)
    return Folding(
        tuple(fixed), tuple(ticking), tuple(carried), tick, lane, tail, len(groups.gradients), tuple(is_late), size
    )


def folded(folding: Folding, lanes: int, sums: Sequence[bool], axes: list[tuple[str, int]]) -> Callable:
    """The step of several micro-batches: (shared, local, batches, keys) -> (gradients, local, outputs).

    Batches, keys and outputs have a leading axis of micro-batches.

    Args:
      folding: the step's parts.
      lanes: how many micro-batches.
      sums: which gradients are summed over the micro-batches; the others have the leading axis as well.
      axes: that steps communicate over.
    """

    def run(shared: list, local: list, batches: list, keys: jax.Array) -> tuple[list, list, list]:
        fixed = [local[i] for i in folding.fixed]
        first = [local[i] for i in folding.ticking]
        last, ticks = _sequence(
            lambda state, _: (jaxpr_as_fun(folding.tick)(*shared, *fixed, *state), list(state)), first, None, lanes
        )
        lane_axes = [None] * (len(shared) + len(fixed)) + [0] * (len(ticks) + len(batches) + 1)
        mapped = jax.vmap(jaxpr_as_fun(folding.lane), in_axes=lane_axes, out_axes=0, axis_size=lanes)
        arguments = (*shared, *fixed, *ticks, *batches, keys)
        closed = jax.make_jaxpr(mapped, axis_env=axes)(*map(_abstract, arguments))
        flags = [*sums, *[False] * (len(closed.out_avals) - folding.gradients)]
        made = lane_sums.summed(closed, flags)(*arguments)
        gradients, made = made[: folding.gradients], made[folding.gradients :]
        count = folding.late.count(False)
        early, seen = made[:count], made[count:]

        def follow(state: list, items: tuple) -> tuple[list, list]:
            ticks, seen = items
            results = jaxpr_as_fun(folding.tail)(*shared, *fixed, *ticks, *state, *seen)
            return results[: len(state)], results[len(state) :]

        carried, late = _sequence(follow, [local[i] for i in folding.carried], (ticks, seen), lanes)
        by_kind = {False: iter(early), True: iter(late)}
        outputs = [next(by_kind[is_late]) for is_late in folding.late]
        after = list(local)
        for indices, values in ((folding.ticking, last), (folding.carried, carried)):
            for index, value in zip(indices, values, strict=True):
                after[index] = value
        return gradients, after, outputs

    return run


class _Needs:
    """Which local values, by their bits, and whether inputs or keys (one bit more) each variable depends on."""

    def __init__(self, groups: _Groups, equations: Sequence[JaxprEqn]) -> None:
        self._groups = groups
        self._varying = 1 << len(groups.local)
        self._bits: dict[Var, int] = {v: 1 << i for i, v in enumerate(groups.local)}
        self._bits |= dict.fromkeys((*groups.batch, groups.key), self._varying)
        for equation in equations:
            bits = self.of_equation(equation)
            if bits:
                self._bits.update(dict.fromkeys(equation.outvars, bits))

    def of(self, atom: Atom) -> int:
        """What an atom depends on."""
        return 0 if isinstance(atom, Literal) else self._bits.get(atom, 0)

    def of_equation(self, equation: JaxprEqn) -> int:
        """What an equation's inputs depend on."""
        bits = 0
        for atom in equation.invars:
            bits |= self.of(atom)
        return bits

    def mask(self, indices: Sequence[int]) -> int:
        """The bits of local values."""
        return sum(1 << i for i in indices)

    def closed(self) -> list[int]:
        """The largest set of local values whose next ones depend on nothing but the set and weights."""
        found = [i for i, atom in enumerate(self._groups.written) if not self.of(atom) & self._varying]
        while True:
            kept = [i for i in found if not self.of(self._groups.written[i]) & ~self.mask(found)]
            if kept == found:
                return found
            found = kept


def _groups(jaxpr: Jaxpr, counts: tuple[int, int, int], structure: Any) -> _Groups:
    shared, local, batch = counts
    ends = (shared, shared + local, shared + local + batch)
    variables = jaxpr.invars
    gradients, written, outputs = jax.tree.unflatten(structure, jaxpr.outvars)
    return _Groups(
        variables[: ends[0]], variables[ends[0] : ends[1]], variables[ends[1] : ends[2]], variables[ends[2]],
        list(gradients), list(written), list(outputs),
    )  # fmt: skip


def _seen(equations: Sequence[JaxprEqn], results: Sequence[Atom], carried: Sequence[Var]) -> list[Var]:
    """What equations and results take from elsewhere."""
    own = {*carried, *(v for e in equations for v in e.outvars)}
    taken = [*(atom for e in equations for atom in e.invars), *results]
    return list(dict.fromkeys(v for v in taken if isinstance(v, Var) and v not in own))


def _contains(equations: Sequence[JaxprEqn], names: Sequence[str]) -> bool:
    return any(
        e.primitive.name in names or any(_contains(inner.eqns, names) for inner in subjaxprs(e.params))
        for e in equations
    )


def _elements(part: ClosedJaxpr) -> int:
    return sum(math.prod(v.aval.shape) for e in part.eqns for v in e.outvars)


def _abstract(value: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(jnp.shape(value), value.dtype)


def _sequence(body: Callable, state: list, items: Any, length: int) -> tuple[list, Any]:
    """A scan, unrolled where that is little."""
    traced = jax.make_jaxpr(lambda s, i: body(s, i))(state, jax.tree.map(lambda a: a[0], items))
    few = len(traced.eqns) * length <= _MOST_UNROLLED
    return lax.scan(body, state, items, length=length, unroll=length if few else 1)
