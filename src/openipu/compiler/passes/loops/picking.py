"""One number of each row by its place, and its gradient, as comparisons with all places: rows are short there."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from openipu.compiler.passes.jaxprs import aval_of

# A row of more numbers is rather looked into.
_LONGEST = 256


def picked(eqn: JaxprEqn) -> Callable[..., Any] | None:
    """What computes a gather that takes one number of each row; None for another one."""
    dims, axis = eqn.params["dimension_numbers"], _axis(eqn, eqn.params["dimension_numbers"].operand_batching_dims)
    if axis is None:
        return None
    is_one = dims.collapsed_slice_dims == (axis,) and dims.start_index_map == (axis,) and not dims.offset_dims
    if not is_one or dims.start_indices_batching_dims != tuple(range(len(dims.operand_batching_dims))):
        return None
    fills = eqn.params["mode"] == lax.GatherScatterMode.FILL_OR_DROP
    fill = eqn.params["fill_value"]

    def pick(x: jax.Array, places: jax.Array) -> jax.Array:
        inside, here = _here(x.shape, places, axis, fills)
        found = jnp.sum(jnp.where(here, x, jnp.zeros((), x.dtype)), axis, dtype=x.dtype)
        if fills:
            found = jnp.where(inside, found, jnp.full((), jnp.nan if fill is None else fill, x.dtype))
        return lax.reshape(found, aval_of(eqn.outvars[0]).shape)

    return pick if jnp.issubdtype(aval_of(eqn.invars[0]).dtype, jnp.floating) else None


def added(eqn: JaxprEqn) -> Callable[..., Any] | None:
    """What computes a scatter that adds one number to each row; None for another one."""
    dims, axis = eqn.params["dimension_numbers"], _axis(eqn, eqn.params["dimension_numbers"].operand_batching_dims)
    if axis is None:
        return None
    is_one = dims.inserted_window_dims == (axis,) and dims.scatter_dims_to_operand_dims == (axis,)
    is_one = is_one and not dims.update_window_dims
    if not is_one or dims.scatter_indices_batching_dims != tuple(range(len(dims.operand_batching_dims))):
        return None
    fills = eqn.params["mode"] == lax.GatherScatterMode.FILL_OR_DROP

    def add(x: jax.Array, places: jax.Array, numbers: jax.Array) -> jax.Array:
        inside, here = _here(x.shape, places, axis, fills)
        numbers = lax.reshape(numbers, inside.shape)
        if fills:
            numbers = jnp.where(inside, numbers, jnp.zeros((), x.dtype))
        return x + jnp.where(here, lax.expand_dims(numbers, [axis]), jnp.zeros((), x.dtype))

    return add


def _axis(eqn: JaxprEqn, batching: tuple[int, ...]) -> int | None:
    """The dimension of rows, if all others are that of rows by number, and each row has one place."""
    x, places = aval_of(eqn.invars[0]), aval_of(eqn.invars[1])
    others = [d for d in range(x.ndim) if d not in batching]
    if len(others) != 1 or batching != tuple(d for d in range(x.ndim) if d != others[0]):
        return None
    (axis,) = others
    rows = tuple(x.shape[d] for d in batching)
    return axis if places.size == x.size // x.shape[axis] and places.shape[: len(rows)] == rows and (
        x.shape[axis] <= _LONGEST
    ) else None  # fmt: skip


def _here(shape: tuple[int, ...], places: jax.Array, axis: int, fills: bool) -> tuple[jax.Array, jax.Array]:
    """Whether each place is one of the row, and for each number whether it is the one."""
    rows = tuple(size for d, size in enumerate(shape) if d != axis)
    places = lax.reshape(places, rows)
    inside = (places >= 0) & (places < shape[axis])
    if not fills:
        places = jnp.clip(places, 0, shape[axis] - 1)
    return inside, lax.broadcasted_iota(places.dtype, shape, axis) == lax.expand_dims(places, [axis])
