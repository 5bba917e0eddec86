"""Stochastic rounding: casts to narrow floats go up or down at random, so that they are right on average."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from openipu.compiler.passes.jaxprs import aval_of, subjaxprs
from openipu.jax_boundary import in_place_of

Values = Sequence[Any]

# Mixed into a step's key, so that casts draw other numbers than the program does.
SALT = 0x5EED

_NARROW = (jnp.float16, jnp.bfloat16)


def stochastic(closed: ClosedJaxpr, arguments: Values, key: jax.Array) -> list[Any]:
    """The results of a jaxpr whose casts to float16 and bfloat16 are rounded at random.

    Args:
      closed: what is computed, with derivatives already taken.
      arguments: its arguments.
      key: what the casts draw from; each one has its own part of it, and in loops one for each iteration.
    """
    jaxpr = closed.jaxpr
    values: dict[Var, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    values |= zip(jaxpr.invars, arguments, strict=True)

    def read(atom: Var | Literal) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for position, equation in enumerate(jaxpr.eqns):
        rule = _rule(equation)
        inputs = [read(atom) for atom in equation.invars]
        # Scopes' names are kept: they hold the marks of pipeline parts.
        with in_place_of(equation):
            if rule is not None:
                results = rule(equation, inputs, jax.random.fold_in(key, position))
            else:
                results = equation.primitive.bind(*inputs, **equation.primitive.get_bind_params(equation.params))
                results = results if equation.primitive.multiple_results else [results]
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def cast(value: jax.Array, dtype: Any, key: jax.Array) -> jax.Array:
    """`value` as one of its two neighbours in `dtype`, the nearer one more often: its mean over keys is the value.

    What overflows, is not finite or fits exactly is cast as always.
    """
    nearest = lax.convert_element_type(value, dtype)
    back = lax.convert_element_type(nearest, value.dtype)
    missing = value - back
    infinity = jnp.asarray(jnp.inf, dtype)
    other = lax.nextafter(nearest, jnp.where(missing > 0, infinity, -infinity))
    gap = lax.convert_element_type(other, value.dtype) - back
    drawn = jax.random.bits(key, value.shape, jnp.uint16).astype(value.dtype)
    moves = (missing != 0) & jnp.isfinite(gap) & (drawn < missing / gap * 2.0**16)
    return jnp.where(moves, other, nearest)


def _rule(equation: JaxprEqn) -> Callable[[JaxprEqn, Values, jax.Array], Values] | None:
    """What replaces an equation; None for one without such a cast."""
    name = equation.primitive.name
    if name == "convert_element_type":
        return _cast if _narrows(equation) else None
    bodies = subjaxprs(equation.params)
    if not any(_rule(inner) for body in bodies for inner in body.jaxpr.eqns):
        return None
    return _RULES.get(name, _call if len(bodies) == 1 else None)


def _narrows(equation: JaxprEqn) -> bool:
    source, wanted = aval_of(equation.invars[0]).dtype, equation.params["new_dtype"]
    wider = jnp.issubdtype(source, jnp.floating) and jnp.finfo(source).bits > 16
    return wider and wanted in _NARROW


def _cast(equation: JaxprEqn, inputs: Values, key: jax.Array) -> Values:
    return [cast(jnp.asarray(inputs[0]), equation.params["new_dtype"], key)]


def _call(equation: JaxprEqn, inputs: Values, key: jax.Array) -> Values:
    return stochastic(subjaxprs(equation.params)[0], inputs, key)


def _scan(equation: JaxprEqn, inputs: Values, key: jax.Array) -> Values:
    given = equation.params
    constants, carried = given["num_consts"], given["num_consts"] + given["num_carry"]

    def body(state: tuple, items: Values) -> tuple:
        number, carry = state
        results = stochastic(given["jaxpr"], [*inputs[:constants], *carry, *items], jax.random.fold_in(key, number))
        return (number + 1, results[: given["num_carry"]]), results[given["num_carry"] :]

    start = (jnp.zeros((), jnp.uint32), list(inputs[constants:carried]))
    (_, carry), stacked = lax.scan(
        body, start, list(inputs[carried:]), length=given["length"], reverse=given["reverse"], unroll=given["unroll"]
    )
    return [*carry, *stacked]


def _while(equation: JaxprEqn, inputs: Values, key: jax.Array) -> Values:
    given = equation.params
    for_test, for_body = given["cond_nconsts"], given["cond_nconsts"] + given["body_nconsts"]

    def goes_on(state: tuple) -> Any:
        return stochastic(given["cond_jaxpr"], [*inputs[:for_test], *state[1]], key)[0]

    def body(state: tuple) -> tuple:
        number, carry = state
        own = jax.random.fold_in(key, number)
        return number + 1, stochastic(given["body_jaxpr"], [*inputs[for_test:for_body], *carry], own)

    return lax.while_loop(goes_on, body, (jnp.zeros((), jnp.uint32), list(inputs[for_body:])))[1]


def _cond(equation: JaxprEqn, inputs: Values, key: jax.Array) -> Values:
    branches = [lambda *given, b=branch: stochastic(b, given, key) for branch in equation.params["branches"]]
    return lax.switch(inputs[0], branches, *inputs[1:])


_RULES = {"scan": _scan, "while": _while, "cond": _cond}
