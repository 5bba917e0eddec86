"""Sorting, selection by rank and searching."""

from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from openipu.torch.aten.dtypes import is_bool, is_float
from openipu.torch.aten.registry import op
from openipu.torch.aten.subgradients import shared

aten = torch.ops.aten


def order(x: jax.Array, dim: int, descending: bool) -> jax.Array:
    """The indices that sort one dimension, equal values in their first order, NaN as the largest."""
    data = lax.stop_gradient(x)
    data = data.astype(jnp.uint8) if is_bool(data) else data
    return jnp.argsort(data, axis=dim, stable=True, descending=descending)


@op(aten.sort.default)
def _sort(x: jax.Array, dim: int = -1, descending: bool = False) -> tuple[jax.Array, jax.Array]:
    if not x.ndim:
        return x, jnp.zeros((), jnp.int32)
    index = order(x, dim, descending)
    return jnp.take_along_axis(x, index, axis=dim), index


@op(aten.sort.stable)
def _sort_stable(
    x: jax.Array, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[jax.Array, jax.Array]:
    return _sort(x, dim, descending)


@op(aten.topk)
def _topk(
    x: jax.Array, k: int, dim: int = -1, largest: bool = True, is_sorted: bool = True
) -> tuple[jax.Array, jax.Array]:
    if not x.ndim:
        return x, jnp.zeros((), jnp.int32)
    axis = dim % x.ndim
    if largest and axis == x.ndim - 1 and is_float(x):
        index = lax.top_k(lax.stop_gradient(x), k)[1]
    else:
        index = lax.slice_in_dim(order(x, axis, largest), 0, k, axis=axis)
    return jnp.take_along_axis(x, index, axis=axis), index


def _ranked(x: jax.Array, rank: Any, dim: int, keep: bool) -> tuple[jax.Array, jax.Array]:
    if not x.ndim:
        return x, jnp.zeros((), jnp.int32)
    index = lax.slice_in_dim(order(x, dim, False), rank, rank + 1, axis=dim)
    value = jnp.take_along_axis(x, index, axis=dim)
    return (value, index) if keep else (value.squeeze(dim), index.squeeze(dim))


@op(aten.kthvalue)
def _kthvalue(x: jax.Array, k: int, dim: int = -1, keep: bool = False) -> tuple[jax.Array, jax.Array]:
    return _ranked(x, k - 1, dim, keep)


@op(aten.median.dim)
def _median_dim(x: jax.Array, dim: int, keep: bool = False) -> tuple[jax.Array, jax.Array]:
    value, index = _ranked(x, (x.shape[dim] - 1) // 2 if x.ndim else 0, dim, keep)
    if not is_float(x) or not x.ndim:
        return value, index
    # torch: the median of what holds a NaN is NaN.
    nan = jnp.argmax(jnp.isnan(x), axis=dim, keepdims=True)
    first = jnp.take_along_axis(x, nan, axis=dim)
    if not keep:
        first, nan = first.squeeze(dim), nan.squeeze(dim)
    return jnp.where(jnp.isnan(first), first, value), jnp.where(jnp.isnan(first), nan, index)


@op(aten.median.default)
def _median(x: jax.Array) -> jax.Array:
    return shared(_median_dim(x.reshape(-1), 0)[0], x)


@op(aten.nanmedian.dim)
def _nanmedian_dim(x: jax.Array, dim: int, keep: bool = False) -> tuple[jax.Array, jax.Array]:
    if not x.ndim or not is_float(x):
        return _median_dim(x, dim, keep)
    # NaN sorts last, so the rank counts only the others.
    rank = jnp.maximum(jnp.sum(~jnp.isnan(x), axis=dim, keepdims=True) - 1, 0) // 2
    index = jnp.take_along_axis(order(x, dim, False), rank, axis=dim)
    value = jnp.take_along_axis(x, index, axis=dim)
    return (value, index) if keep else (value.squeeze(dim), index.squeeze(dim))


@op(aten.nanmedian.default)
def _nanmedian(x: jax.Array) -> jax.Array:
    return shared(_nanmedian_dim(x.reshape(-1), 0)[0], x)


@op(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def _searchsorted(
    sequence: jax.Array,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: jax.Array | None = None,
) -> jax.Array:
    if sorter is not None:
        sequence = jnp.take_along_axis(sequence, sorter, axis=-1)
    values = jnp.asarray(values)
    side = "right" if right or side == "right" else "left"
    if sequence.ndim == 1:
        return jnp.searchsorted(sequence, values, side=side)
    return jnp.vectorize(lambda s, v: jnp.searchsorted(s, v, side=side), signature="(n),(m)->(m)")(sequence, values)


@op(aten.bucketize.Tensor, aten.bucketize.Scalar)
def _bucketize(values: Any, boundaries: jax.Array, *, out_int32: bool = False, right: bool = False) -> jax.Array:
    return _searchsorted(boundaries, values, right=right)
