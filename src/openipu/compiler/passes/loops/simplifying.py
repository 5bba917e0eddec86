"""Operations that the kernel does not have, as some that it has: powers, limits, the place of a maximum."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Jaxpr, JaxprEqn, Var, jaxpr_as_fun

from openipu.compiler.passes.jaxprs import Atom, aval_of, read, traced
from openipu.compiler.passes.loops import picking
from openipu.compiler.passes.loops.views import NotInLoops

Arrays = Sequence[jax.Array]
# Higher powers are rather functions of their own.
_MOST_POWER = 64
# Equations of all steps of a loop inside a step.
_MOST_UNROLLED = 512


def simplified(jaxpr: Jaxpr) -> Jaxpr:
    """A body without these operations."""
    env: dict[Var, Atom] = {}
    equations = list(_simple(jaxpr.eqns, env))
    return jaxpr.replace(eqns=equations, outvars=[read(env, atom) for atom in jaxpr.outvars])


def _simple(equations: Sequence[JaxprEqn], env: dict[Var, Atom]) -> list[JaxprEqn]:
    found: list[JaxprEqn] = []
    for eqn in equations:
        eqn = eqn.replace(invars=[read(env, atom) for atom in eqn.invars])
        function = _function(eqn)
        if function is None:
            found.append(eqn)
            continue
        made = traced(function, *eqn.invars)
        if made.consts:
            raise NotInLoops(f"{eqn.primitive.name} with constants that are arrays")
        inner: dict[Var, Atom] = {}
        found += _simple(made.equations, inner)
        env.update(zip(eqn.outvars, (read(inner, atom) for atom in made.results), strict=True))
    return found


def _function(eqn: JaxprEqn) -> Callable[..., Any] | None:
    """What computes the same; None for an equation that stays."""
    name, params = eqn.primitive.name, eqn.params
    if name in ("jit", "pjit"):
        return jaxpr_as_fun(params["jaxpr"])
    if name == "scan" and params["length"] * len(params["jaxpr"].eqns) <= _MOST_UNROLLED and not eqn.effects:
        return lambda *given: _unrolled(given, params)
    if name == "reduce" and len(params["dimensions"]) == 1:
        return lambda *given: _reduced(given, jaxpr_as_fun(params["jaxpr"]), params["dimensions"][0])
    if name in ("argmax", "argmin") and len(params["axes"]) == 1:
        return lambda x: _place(x, params["axes"][0], params["index_dtype"], name == "argmax")
    if name == "gather":
        return picking.picked(eqn)
    if name == "scatter-add":
        return picking.added(eqn)
    if name == "stack":
        return lambda *given: lax.concatenate([lax.expand_dims(x, [params["axis"]]) for x in given], params["axis"])
    if name == "square":
        return lambda x: lax.mul(x, x)
    if name == "integer_pow" and abs(params["y"]) <= _MOST_POWER:
        return lambda x: _power(x, params["y"])
    if name == "clamp":
        shape = aval_of(eqn.outvars[0]).shape
        return lambda least, x, most: lax.min(lax.max(x, jnp.broadcast_to(least, shape)), jnp.broadcast_to(most, shape))
    return None


def _unrolled(given: Arrays, params: dict[str, Any]) -> list[jax.Array]:
    """A short loop, such as that over the micro-batches of an update, as its steps."""
    constants, carried = params["num_consts"], params["num_carry"]
    step = jaxpr_as_fun(params["jaxpr"])
    state, rows = list(given[constants : constants + carried]), given[constants + carried :]
    made: list[list[jax.Array]] = []
    numbers = range(params["length"])
    for number in reversed(numbers) if params["reverse"] else numbers:
        results = step(*given[:constants], *state, *(lax.index_in_dim(x, number, keepdims=False) for x in rows))
        state = results[:carried]
        made.append([lax.expand_dims(x, [0]) for x in results[carried:]])
    if params["reverse"]:
        made.reverse()
    return [*state, *(lax.concatenate(parts, 0) for parts in zip(*made, strict=True))]


def _power(x: jax.Array, power: int) -> jax.Array:
    one = lax.full_like(x, 1)
    made, square, left = None, x, abs(power)
    while left:
        if left % 2:
            made = square if made is None else lax.mul(made, square)
        left //= 2
        square = lax.mul(square, square) if left else square
    made = one if made is None else made
    return made if power >= 0 else lax.div(one, made)


def _reduced(given: Arrays, pair: Callable[..., Any], axis: int) -> list[jax.Array]:
    half = len(given) // 2
    arrays, starts = given[:half], given[half:]
    found = _combined(arrays, lambda *both: _each(pair, both), axis)
    starts = [jnp.broadcast_to(start, x.shape) for start, x in zip(starts, found, strict=True)]
    return _each(pair, (*starts, *found))


def _place(x: jax.Array, axis: int, dtype: Any, largest: bool) -> jax.Array:
    def better(value: Any, place: Any, other: Any, other_place: Any) -> tuple[Any, Any]:
        # What is not a number comes first; of equals the first place.
        wins = (value > other) if largest else (value < other)
        wins = wins | (value != value) | ((value == other) & (place < other_place))
        return jnp.where(wins, value, other), jnp.where(wins, place, other_place)

    return _combined((x, lax.broadcasted_iota(dtype, x.shape, axis)), better, axis)[1]


def _each(pair: Callable[..., Any], arrays: Arrays) -> list[jax.Array]:
    """A function of numbers, of all numbers of arrays."""
    for _ in range(arrays[0].ndim):
        pair = jax.vmap(pair)
    return list(pair(*arrays))


def _combined(arrays: Arrays, pair: Callable[..., Any], axis: int) -> list[jax.Array]:
    """All numbers along an axis put together, two and two; the axis is gone."""
    arrays = list(arrays)
    left_over: list[list[jax.Array]] = []
    while (count := arrays[0].shape[axis]) > 1:
        if count % 2:
            left_over.append([lax.slice_in_dim(x, count - 1, count, axis=axis) for x in arrays])
        near, far = ([lax.slice_in_dim(x, at, at + count // 2, axis=axis) for x in arrays] for at in (0, count // 2))
        arrays = list(pair(*near, *far))
    for rest in reversed(left_over):
        arrays = list(pair(*arrays, *rest))
    return [lax.squeeze(x, [axis]) for x in arrays]
