"""Sum gradients over replicas where they arise: inside the matrix product that makes them.

A step mapped over replicas makes one gradient for each of them, and their sum follows. As a product per replica and a
sum, memory for all of them is written and read again; contracted over the replicas as well, it is one product.
"""

from collections import Counter
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from openipu.compiler.native import convolution, direct
from openipu.compiler.passes import dead
from openipu.compiler.passes.jaxprs import aval_of, with_equations


def summed(mapped: ClosedJaxpr, sums: list[bool]) -> Callable[..., list[jax.Array]]:
    """A function that evaluates a mapped step with some of its results summed over the leading axis.

    Args:
      mapped: the step of all replicas; the results to be summed have the replicas as their first axis.
      sums: which results.
    """
    jaxpr = mapped.jaxpr
    makers: dict[Var, JaxprEqn] = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}
    uses = Counter(v for eqn in jaxpr.eqns for v in eqn.invars if isinstance(v, Var))
    uses.update(v for v in jaxpr.outvars if isinstance(v, Var))
    wanted: list[Var] = []
    builders: list[Callable[[dict], jax.Array]] = []
    for variable, flag in zip(jaxpr.outvars, sums, strict=True):
        if flag and isinstance(variable, Var):
            builders.append(_builder(variable, 0, makers, uses, wanted))
        else:
            builders.append(_plain(variable, wanted))
    needed = list(dict.fromkeys(wanted))
    partial = dead.run(ClosedJaxpr(with_equations(jaxpr, list(jaxpr.eqns), list(needed)), mapped.consts))

    def evaluate(*arguments: jax.Array) -> list[jax.Array]:
        values = dict(zip(needed, jaxpr_as_fun(partial)(*arguments), strict=True))
        return [build(values) for build in builders]

    return evaluate


def _plain(atom: Var | Literal, wanted: list[Var]) -> Callable[[dict], jax.Array]:
    if isinstance(atom, Literal):
        return lambda values: jnp.asarray(atom.val)
    wanted.append(atom)
    return lambda values: values[atom]


def _builder(
    variable: Var | Literal, axis: int, makers: dict, uses: Counter, wanted: list[Var]
) -> Callable[[dict], jax.Array]:
    """How to make the sum of a variable over an axis, from the values it was to be made of where that is cheaper."""
    if isinstance(variable, Literal):
        return lambda values: jnp.sum(jnp.asarray(variable.val), axis)
    eqn = makers.get(variable)
    if eqn is not None and uses[variable] == 1 and len(eqn.outvars) == 1:
        rule = _RULES.get(eqn.primitive.name)
        made = rule(eqn, axis, makers, uses, wanted) if rule else None
        if made is not None:
            return made
    wanted.append(variable)
    return lambda values: jnp.sum(values[variable], axis)


def _transpose(eqn: JaxprEqn, axis: int, makers: dict, uses: Counter, wanted: list[Var]):  # noqa: ANN202
    permutation = eqn.params["permutation"]
    source = permutation[axis]
    inner = _builder(eqn.invars[0], source, makers, uses, wanted)
    order = [p - (p > source) for p in permutation if p != source]
    return lambda values: lax.transpose(inner(values), order)


def _reshape(eqn: JaxprEqn, axis: int, makers: dict, uses: Counter, wanted: list[Var]):  # noqa: ANN202
    before, after = aval_of(eqn.invars[0]).shape, aval_of(eqn.outvars[0]).shape
    # Only where the summed axis leads on both sides does it survive as an axis of its own.
    if axis or not before or before[0] != after[0] or eqn.params.get("dimensions") is not None:
        return None
    inner = _builder(eqn.invars[0], 0, makers, uses, wanted)
    return lambda values: lax.reshape(inner(values), after[1:])


def _dot_general(eqn: JaxprEqn, axis: int, makers: dict, uses: Counter, wanted: list[Var]):  # noqa: ANN202
    (left_sum, right_sum), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    left, right = eqn.invars
    if axis >= len(left_batch) or isinstance(left, Literal) or isinstance(right, Literal):
        return None
    wanted.extend((left, right))
    numbers = (
        ((*left_sum, left_batch[axis]), (*right_sum, right_batch[axis])),
        (_without(left_batch, axis), _without(right_batch, axis)),
    )
    given = {name: eqn.params[name] for name in ("precision", "preferred_element_type")}
    return lambda values: lax.dot_general(values[left], values[right], numbers, **given)


def _weight_gradient(eqn: JaxprEqn, axis: int, makers: dict, uses: Counter, wanted: list[Var]):  # noqa: ANN202
    left, right = eqn.invars
    kind, lanes, layer = (eqn.params[name] for name in ("kind", "lanes", "layer"))
    if axis or not lanes or isinstance(left, Literal) or isinstance(right, Literal):
        return None
    wanted.extend((left, right))
    return lambda values: convolution.summed_over_lanes(kind, values[left], values[right], layer, lanes)


def _direct_weight_gradient(eqn: JaxprEqn, axis: int, makers: dict, uses: Counter, wanted: list[Var]):  # noqa: ANN202
    left, right = eqn.invars
    lanes, layer = eqn.params["lanes"], eqn.params["layer"]
    if axis or not eqn.params["sets"] or isinstance(left, Literal) or isinstance(right, Literal):
        return None
    wanted.extend((left, right))
    return lambda values: direct.summed_over_lanes(values[left], values[right], layer, lanes)


def _without(items: tuple, index: int) -> tuple:
    return (*items[:index], *items[index + 1 :])


_RULES: dict[str, Callable] = {
    "transpose": _transpose,
    "reshape": _reshape,
    "dot_general": _dot_general,
    **{convolution.PRIMITIVES[kind].name: _weight_gradient for kind in convolution.Kind if kind.of_weights},
    direct.Kind.WEIGHT_GRADIENT.value: _direct_weight_gradient,
}
