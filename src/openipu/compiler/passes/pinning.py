"""Compute a value once that is compared for equality with what was picked from it.

The gradient of a maximum goes to the values that equal it. XLA puts cheap producers into every loop that reads them;
where one loop's product and sum become a fused multiply-add and another's do not, values are rounded anew, nothing
equals the maximum, and the gradient is lost. A division is not cheap, so it is never computed twice, and a division
by one changes nothing.
"""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from openipu.compiler.passes.jaxprs import Atom, aval_of, has_subjaxprs, map_subjaxprs, read, with_equations
from openipu.jax_boundary import in_scope, name_stack

# Their results are some of their inputs, whoever computes them.
_PICKING = frozenset({
    "broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "rev", "slice", "dynamic_slice", "gather",
    "copy", "concatenate", "pad", "select_n", "max", "min", "clamp", "reduce_max", "reduce_min", "reduce_window_max",
    "reduce_window_min", "cummax", "cummin", "stop_gradient", "convert_element_type", "neg", "abs",
})  # fmt: skip
# What XLA computes again in other loops, and may round otherwise there when it is part of a sum.
_CHEAP = frozenset({"add", "sub", "add_any", "mul", "square", "integer_pow", "reduce_sum", "div"})
_SUMS = frozenset({"add", "sub", "add_any"})


def run(closed_jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """Returns the jaxpr in which no value is rounded twice and then compared; also inside loops and branches."""
    jaxpr = closed_jaxpr.jaxpr
    makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    pinned = {var for eqn in jaxpr.eqns for var in _compared(eqn, makers) if _rounds_anew(var, makers)}
    equations: list[JaxprEqn] = []
    env: dict[Var, Atom] = {}
    for eqn in jaxpr.eqns:
        params = map_subjaxprs(eqn.params, run) if has_subjaxprs(eqn.params) else eqn.params
        equations.append(eqn.replace(invars=[read(env, atom) for atom in eqn.invars], params=params))
        for var in pinned.intersection(eqn.outvars):
            # A function of its own, since JAX remembers what it traced: two values would share their variables.
            once = lambda value: _once(value)  # noqa: E731
            traced = jax.make_jaxpr(once)(jax.ShapeDtypeStruct(aval_of(var).shape, aval_of(var).dtype)).jaxpr
            given: dict[Var, Atom] = {traced.invars[0]: var}
            for new in traced.eqns:
                # In the scope of the value, which says what stage of a pipeline it belongs to.
                new = new.replace(invars=[read(given, atom) for atom in new.invars])
                equations.append(in_scope(new, name_stack(eqn)))
            env[var] = traced.outvars[0]
    outvars = [read(env, atom) for atom in jaxpr.outvars]
    return closed_jaxpr.replace(jaxpr=with_equations(jaxpr, equations, outvars))


def _once(value: jax.Array) -> jax.Array:
    # Ones that XLA does not know: it leaves out divisions by a constant, and makes products of those by one number.
    unknown = lax.bitcast_convert_type(value, jnp.dtype(f"int{8 * value.dtype.itemsize}"))
    return lax.div(value, lax.convert_element_type((unknown | 1) & 1, value.dtype))


def _compared(eqn: JaxprEqn, makers: dict[Var, JaxprEqn]) -> set[Var]:
    """The computed values that both sides of a comparison were picked from."""
    if eqn.primitive.name not in ("eq", "ne", "eq_to") or not jnp.issubdtype(
        aval_of(eqn.invars[0]).dtype, jnp.floating
    ):
        return set()
    one, other = (set(_origins(atom, makers)) for atom in eqn.invars)
    return one & other


def _origins(atom: Atom, makers: dict[Var, JaxprEqn]) -> Iterator[Var]:
    """The values that were not picked, of which this one is."""
    seen: set[Var] = set()
    waiting = [atom]
    while waiting:
        atom = waiting.pop()
        if isinstance(atom, Literal) or atom in seen:
            continue
        seen.add(atom)
        eqn = makers.get(atom)
        if eqn is not None and eqn.primitive.name in _PICKING:
            waiting.extend(eqn.invars)
        elif eqn is not None and jnp.issubdtype(aval_of(atom).dtype, jnp.floating):
            yield atom


def _rounds_anew(value: Var, makers: dict[Var, JaxprEqn]) -> bool:
    """Whether a value is a sum of products, or of more than two values, that are not kept anywhere."""
    waiting: list[tuple[Atom, bool]] = [(value, False)]
    seen: set[tuple[Var, bool]] = set()
    while waiting:
        atom, summed = waiting.pop()
        if isinstance(atom, Literal) or (atom, summed) in seen:
            continue
        seen.add((atom, summed))
        eqn = makers.get(atom)
        name = "" if eqn is None else eqn.primitive.name
        if eqn is None or name not in _PICKING | _CHEAP or (name == "div" and not _by_constant(eqn, makers)):
            continue
        if name == "reduce_sum" or (summed and name in _CHEAP - _SUMS):
            return True
        waiting.extend((operand, summed or name in _SUMS) for operand in eqn.invars)
    return False


def _by_constant(eqn: JaxprEqn, makers: dict[Var, JaxprEqn]) -> bool:
    """Whether XLA makes a product of a division."""
    divisor = eqn.invars[1]
    maker = None if isinstance(divisor, Literal) else makers.get(divisor)
    return isinstance(divisor, Literal) or (
        maker is not None and maker.primitive.name == "broadcast_in_dim" and isinstance(maker.invars[0], Literal)
    )
