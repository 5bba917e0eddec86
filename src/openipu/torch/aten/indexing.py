"""Reading and writing at given indices."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from openipu.torch.aten.dtypes import is_bool
from openipu.torch.aten.registry import Context, op, refuse
from openipu.torch.exceptions import UnsupportedError

aten = torch.ops.aten

_DYNAMIC = "the shape of its result depends on the data, and an IPU program has static shapes; use a mask instead"
refuse(
    _DYNAMIC,
    aten.nonzero,
    aten.nonzero_numpy,
    aten.argwhere,
    aten.masked_select,
    aten.unique_dim,
    aten._unique2,
    aten.unique_consecutive,
    aten.unique_dim_consecutive,
    aten.repeat_interleave.Tensor,
)
refuse("it reads a value on the host in the middle of the program", aten.item, aten._local_scalar_dense, aten.equal)


def along(x: jax.Array, dim: int) -> tuple[slice, ...]:
    """What stands before dimension `dim` in an index."""
    return (slice(None),) * (dim % max(x.ndim, 1))


@op(aten.index.Tensor, aten._unsafe_index.Tensor)
def _index(x: jax.Array, indices: Sequence[jax.Array | None]) -> jax.Array:
    return x[_as_index(indices)]


def _as_index(indices: Sequence[jax.Array | None]) -> tuple:
    return tuple(slice(None) if index is None else index for index in indices)


@op(aten.index_put, aten._unsafe_index_put)
def _index_put(
    x: jax.Array, indices: Sequence[jax.Array | None], values: jax.Array, accumulate: bool = False, *_: Any
) -> jax.Array:
    given = [index for index in indices if index is not None]
    if any(is_bool(index) for index in given):
        return _masked_put(x, indices, values, accumulate)
    place = x.at[_as_index(indices)]
    return place.add(values) if accumulate else place.set(values)


def _masked_put(x: jax.Array, indices: Sequence[jax.Array | None], values: jax.Array, accumulate: bool) -> jax.Array:
    """Writing where a mask holds: the same value everywhere, or one in the shape of what follows the mask."""
    lead = 0
    while indices[lead] is None:
        lead += 1
    mask = indices[lead]
    assert mask is not None
    rest = x.ndim - lead - mask.ndim
    full = mask.reshape(*(1,) * lead, *mask.shape, *(1,) * rest)
    if values.ndim > rest:
        # The selected elements are one dimension of the values; only a single value can stand for all of them.
        lead_values = values.shape[: values.ndim - rest - 1]
        values = values.reshape(*lead_values, *(1,) * mask.ndim, *values.shape[values.ndim - rest :])
    return jnp.where(full, x + values if accumulate else values.astype(x.dtype), x)


@op(aten.index_select)
def _index_select(x: jax.Array, dim: int, index: jax.Array) -> jax.Array:
    if not x.ndim:
        return x
    return jnp.take(x, jnp.atleast_1d(index), axis=dim, mode="clip")


@op(aten.take)
def _take(x: jax.Array, index: jax.Array) -> jax.Array:
    return x.reshape(-1)[index]


@op(aten.gather)
def _gather(x: jax.Array, dim: int, index: jax.Array, *, sparse_grad: bool = False) -> jax.Array:
    if not x.ndim or not index.ndim:
        return jnp.broadcast_to(x.reshape(-1)[0], index.shape) if not x.ndim else x[index]
    return x[grid(index, dim)]


def grid(index: jax.Array, dim: int) -> tuple[jax.Array, ...]:
    """For each dimension where the elements of `index` lie, with `index` itself for dimension `dim`."""
    dim = dim % index.ndim
    return tuple(
        index if axis == dim else lax.broadcasted_iota(jnp.int32, index.shape, axis) for axis in range(index.ndim)
    )


def _source(source: Any, index: jax.Array) -> Any:
    """The part of the source that the index covers."""
    if isinstance(source, bool | int | float) or not getattr(source, "ndim", 0):
        return source
    return lax.slice(source, (0,) * source.ndim, index.shape)


@op(aten.scatter.src, aten.scatter.value)
def _scatter(x: jax.Array, dim: int, index: jax.Array, source: Any) -> jax.Array:
    x, index, flat = _ranked(x, index)
    return x.at[grid(index, dim)].set(jnp.asarray(_source(_lifted(source, flat), index), x.dtype)).reshape(flat)


@op(aten.scatter_add)
def _scatter_add(x: jax.Array, dim: int, index: jax.Array, source: jax.Array) -> jax.Array:
    x, index, flat = _ranked(x, index)
    return x.at[grid(index, dim)].add(_source(_lifted(source, flat), index)).reshape(flat)


@op(aten.scatter.reduce, aten.scatter.value_reduce)
def _scatter_named(x: jax.Array, dim: int, index: jax.Array, source: Any, *, reduce: str) -> jax.Array:
    kind = {"add": "sum", "multiply": "prod"}[reduce]
    source = jnp.broadcast_to(jnp.asarray(source, x.dtype), index.shape) if not hasattr(source, "shape") else source
    return _scatter_reduce(x, dim, index, source, kind)


@op(aten.scatter_reduce.two)
def _scatter_reduce(
    x: jax.Array, dim: int, index: jax.Array, source: jax.Array, reduce: str, *, include_self: bool = True
) -> jax.Array:
    x, index, flat = _ranked(x, index)
    return _combine(x, grid(index, dim), _source(_lifted(source, flat), index), reduce, include_self).reshape(flat)


def _ranked(x: jax.Array, index: jax.Array) -> tuple[jax.Array, jax.Array, tuple[int, ...]]:
    """Operands with at least one dimension, and the shape of the result."""
    flat = x.shape
    return jnp.atleast_1d(x), jnp.atleast_1d(index), flat


def _lifted(source: Any, flat: tuple[int, ...]) -> Any:
    return source.reshape(1) if not flat and hasattr(source, "reshape") else source


@op(aten.index_reduce)
def _index_reduce(
    x: jax.Array, dim: int, index: jax.Array, source: jax.Array, reduce: str, *, include_self: bool = True
) -> jax.Array:
    flat = x.shape
    x, index = jnp.atleast_1d(x), jnp.atleast_1d(index)
    place = (*along(x, dim), index)
    return _combine(x, place, source.reshape(_written(x, dim, index)), reduce, include_self).reshape(flat)


def _combine(x: jax.Array, place: tuple, source: jax.Array, reduce: str, include_self: bool) -> jax.Array:
    touched = jnp.zeros(x.shape, bool).at[place].set(True)
    base = x
    if not include_self:
        base = jnp.where(touched, jnp.asarray(_neutral(reduce, x), x.dtype), x)
    if reduce in ("sum", "add", "mean"):
        total = base.at[place].add(source)
        if reduce != "mean":
            return total
        count = jnp.full(x.shape, int(include_self), jnp.int32).at[place].add(1)
        count = jnp.maximum(count, 1).astype(x.dtype)
        return total / count if jnp.issubdtype(x.dtype, jnp.floating) else jnp.floor_divide(total, count)
    if reduce == "prod":
        result = lax.stop_gradient(base).at[place].multiply(lax.stop_gradient(source))
        return _with_slopes(result, base, place, source, _ratio)
    writer = lax.stop_gradient(base).at[place]
    result = writer.max(lax.stop_gradient(source)) if reduce == "amax" else writer.min(lax.stop_gradient(source))
    return _evenly(result, base, place, source)


def _neutral(reduce: str, x: jax.Array) -> Any:
    if reduce in ("amax", "amin"):
        low = reduce == "amax"
        if jnp.issubdtype(x.dtype, jnp.floating):
            return -jnp.inf if low else jnp.inf
        limits = jnp.iinfo(x.dtype) if not is_bool(x) else None
        return (not low) if limits is None else (limits.min if low else limits.max)
    return 1 if reduce == "prod" else 0


def _ratio(result: jax.Array, value: jax.Array) -> jax.Array:
    return result / jnp.where(value == 0, jnp.ones_like(value), value)


def _with_slopes(result: jax.Array, base: jax.Array, place: tuple, source: jax.Array, slope: Any) -> jax.Array:
    """A result known without gradient, given the slopes towards what it was combined from."""
    if not jnp.issubdtype(result.dtype, jnp.floating):
        return result
    own = lax.stop_gradient(slope(result, base))
    theirs = lax.stop_gradient(slope(result[place], source))
    change = own * (base - lax.stop_gradient(base))
    return result + change.at[place].add(theirs * (source - lax.stop_gradient(source)))


def _evenly(result: jax.Array, base: jax.Array, place: tuple, source: jax.Array) -> jax.Array:
    """The slopes of an extreme value: shared evenly among those that reach it."""
    if not jnp.issubdtype(result.dtype, jnp.floating):
        return result
    reached = (lax.stop_gradient(source) == result[place]).astype(result.dtype)
    kept = (lax.stop_gradient(base) == result).astype(result.dtype)
    share = 1 / jnp.maximum(kept.at[place].add(reached), 1)
    # The neutral value of an untouched element may be infinite, so its difference must not be taken.
    change = jnp.where(kept > 0, base, 0)
    change = (change - lax.stop_gradient(change)) * share
    moved = jnp.where(reached > 0, source, 0)
    return result + change.at[place].add((moved - lax.stop_gradient(moved)) * share[place])


@op(aten.index_add)
def _index_add(x: jax.Array, dim: int, index: jax.Array, source: jax.Array, *, alpha: Any = 1) -> jax.Array:
    if not x.ndim:
        return x + jnp.sum(source) * alpha
    scaled = source if alpha == 1 else source * jnp.asarray(alpha, source.dtype)
    index = jnp.atleast_1d(index)
    return x.at[(*along(x, dim), index)].add(scaled.reshape(_written(x, dim, index)))


@op(aten.index_copy)
def _index_copy(x: jax.Array, dim: int, index: jax.Array, source: jax.Array) -> jax.Array:
    if not x.ndim:
        return source.reshape(())
    index = jnp.atleast_1d(index)
    return x.at[(*along(x, dim), index)].set(source.reshape(_written(x, dim, index)))


def _written(x: jax.Array, dim: int, index: jax.Array) -> tuple[int, ...]:
    dim = dim % x.ndim
    return (*x.shape[:dim], index.shape[0], *x.shape[dim + 1 :])


@op(aten.index_fill)
def _index_fill(x: jax.Array, dim: int, index: jax.Array, value: Any) -> jax.Array:
    if not x.ndim:
        return jnp.asarray(value, x.dtype)
    return x.at[(*along(x, dim), index)].set(jnp.asarray(value, x.dtype))


@op(aten.masked_scatter)
def _masked_scatter(x: jax.Array, mask: jax.Array, source: jax.Array) -> jax.Array:
    mask = jnp.broadcast_to(mask, x.shape)
    rank = jnp.cumsum(mask.reshape(-1).astype(jnp.int32)).reshape(x.shape) - 1
    return jnp.where(mask, source.reshape(-1)[jnp.clip(rank, 0, source.size - 1)], x)


def _refuse_frequency(scale_grad_by_freq: bool) -> None:
    if scale_grad_by_freq:
        raise UnsupportedError(
            "scale_grad_by_freq=True of an embedding is not supported: its gradient would not be divided by how often "
            "a row occurs. Make the embedding with scale_grad_by_freq=False."
        )


@op(aten.embedding)
def _embedding(
    weight: jax.Array, index: jax.Array, padding: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> jax.Array:
    _refuse_frequency(scale_grad_by_freq)
    rows = jnp.take(weight, index, axis=0, mode="clip")
    if padding < 0:
        return rows
    # The padding's row is read, but never trained.
    return jnp.where((index == padding)[..., None], lax.stop_gradient(rows), rows)


@op(aten._embedding_bag, aten._embedding_bag_forward_only, context=True)
def _embedding_bag(
    context: Context,
    weight: jax.Array,
    index: jax.Array,
    offsets: jax.Array,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    sample_weights: jax.Array | None = None,
    include_last: bool = False,
    padding: int = -1,
) -> tuple[Any, ...]:
    _refuse_frequency(scale_grad_by_freq)
    bags = context.value[0].shape[0]
    starts = offsets[:bags]
    bag = jnp.sum(jnp.arange(index.shape[0], dtype=starts.dtype)[:, None] >= starts[None], axis=1) - 1
    kept = jnp.ones(index.shape, bool) if padding < 0 else index != padding
    rows = jnp.take(weight, index, axis=0, mode="clip")
    if sample_weights is not None:
        rows = rows * sample_weights[:, None]
    count = jnp.zeros((bags,), jnp.int32).at[bag].add(kept.astype(jnp.int32))
    zeros = jnp.zeros((bags, weight.shape[1]), rows.dtype)
    if mode == 2:
        spot = jnp.where(kept, bag, bags)
        extended = jnp.zeros((bags + 1, weight.shape[1]), rows.dtype)
        result = _combine(extended, (spot,), rows, "amax", False)[:bags]
    else:
        result = zeros.at[bag].add(jnp.where(kept[:, None], rows, jnp.zeros_like(rows)))
        if mode == 1:
            result = result / jnp.maximum(count, 1)[:, None].astype(rows.dtype)
    # The other results serve torch's own backward pass.
    return result, None, None, None
