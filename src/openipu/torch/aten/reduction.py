"""Reductions over dimensions, and running ones."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from openipu.torch.aten.dtypes import Scalar, accumulator, is_float, wide
from openipu.torch.aten.registry import op
from openipu.torch.aten.subgradients import absolute, safe_power, safe_sqrt

aten = torch.ops.aten
Dims = Sequence[int] | int | None


def axes_of(x: jax.Array, dims: Dims) -> tuple[int, ...]:
    """Dimensions as JAX takes them; torch means all of them by none, and by an empty list."""
    if dims is None or (not isinstance(dims, int) and not dims):
        return tuple(range(x.ndim))
    listed = (dims,) if isinstance(dims, int) else dims
    return tuple(dim % max(x.ndim, 1) for dim in listed) if x.ndim else ()


@op(aten.sum)
def _sum(x: jax.Array, dims: Dims = None, keep: bool = False, *, dtype: torch.dtype | None = None) -> jax.Array:
    x = accumulator(x, dtype)
    return jnp.sum(x, axes_of(x, dims), keepdims=keep)


@op(aten.mean)
def _mean(x: jax.Array, dims: Dims = None, keep: bool = False, *, dtype: torch.dtype | None = None) -> jax.Array:
    x = accumulator(x, dtype)
    return jnp.mean(x, axes_of(x, dims), keepdims=keep)


@op(aten.prod)
def _prod(x: jax.Array, dims: Dims = None, keep: bool = False, *, dtype: torch.dtype | None = None) -> jax.Array:
    x = accumulator(x, dtype)
    return jnp.prod(x, axes_of(x, dims), keepdims=keep)


@op(aten.amax)
def _amax(x: jax.Array, dims: Dims = None, keep: bool = False) -> jax.Array:
    return jnp.max(x, axes_of(x, dims), keepdims=keep)


@op(aten.amin)
def _amin(x: jax.Array, dims: Dims = None, keep: bool = False) -> jax.Array:
    return jnp.min(x, axes_of(x, dims), keepdims=keep)


@op(aten.max.default)
def _max(x: jax.Array) -> jax.Array:
    return jnp.max(x)


@op(aten.min.default)
def _min(x: jax.Array) -> jax.Array:
    return jnp.min(x)


@op(aten.max.dim)
def _max_dim(x: jax.Array, dim: int, keep: bool = False) -> tuple[jax.Array, jax.Array]:
    return _winner(jnp.argmax, x, dim, keep)


@op(aten.min.dim)
def _min_dim(x: jax.Array, dim: int, keep: bool = False) -> tuple[jax.Array, jax.Array]:
    return _winner(jnp.argmin, x, dim, keep)


def _winner(choose: Callable, x: jax.Array, dim: int, keep: bool) -> tuple[jax.Array, jax.Array]:
    """The extreme value and its index; the gradient goes to that one element."""
    if not x.ndim:
        return x, jnp.zeros((), jnp.int32)
    index = choose(x, axis=dim, keepdims=True)
    value = jnp.take_along_axis(x, index, axis=dim)
    return (value, index) if keep else (value.squeeze(dim), index.squeeze(dim))


@op(aten.argmax)
def _argmax(x: jax.Array, dim: int | None = None, keep: bool = False) -> jax.Array:
    return jnp.argmax(x, axis=dim if x.ndim else None, keepdims=keep)


@op(aten.argmin)
def _argmin(x: jax.Array, dim: int | None = None, keep: bool = False) -> jax.Array:
    return jnp.argmin(x, axis=dim if x.ndim else None, keepdims=keep)


@op(aten.any)
def _any(x: jax.Array, dims: Dims = None, keep: bool = False) -> jax.Array:
    return jnp.any(x, axes_of(x, dims), keepdims=keep)


@op(aten.all)
def _all(x: jax.Array, dims: Dims = None, keep: bool = False) -> jax.Array:
    return jnp.all(x, axes_of(x, dims), keepdims=keep)


def _moments(x: jax.Array, dims: Dims, correction: Scalar, keep: bool) -> tuple[jax.Array, jax.Array]:
    x = wide(x)
    axes = axes_of(x, dims)
    count = math.prod(x.shape[axis] for axis in axes)
    mean = jnp.mean(x, axes, keepdims=True)
    squares = jnp.sum(jnp.square(x - mean), axes, keepdims=keep)
    divisor = max(count - correction, 0)
    variance = squares / divisor if divisor else squares * jnp.nan
    return variance, mean if keep else mean.reshape(variance.shape)


@op(aten.var.correction)
def _var(x: jax.Array, dims: Dims = None, *, correction: Scalar | None = None, keepdim: bool = False) -> jax.Array:
    return _moments(x, dims, 1 if correction is None else correction, keepdim)[0]


@op(aten.var_mean.correction)
def _var_mean(
    x: jax.Array, dims: Dims = None, *, correction: Scalar | None = None, keepdim: bool = False
) -> tuple[jax.Array, jax.Array]:
    return _moments(x, dims, 1 if correction is None else correction, keepdim)


@op(aten.std.correction)
def _std(x: jax.Array, dims: Dims = None, *, correction: Scalar | None = None, keepdim: bool = False) -> jax.Array:
    return safe_sqrt(_moments(x, dims, 1 if correction is None else correction, keepdim)[0])


@op(aten.std_mean.correction)
def _std_mean(
    x: jax.Array, dims: Dims = None, *, correction: Scalar | None = None, keepdim: bool = False
) -> tuple[jax.Array, jax.Array]:
    variance, mean = _moments(x, dims, 1 if correction is None else correction, keepdim)
    return safe_sqrt(variance), mean


@op(aten.linalg_vector_norm)
def vector_norm(
    x: jax.Array, order: Scalar = 2, dims: Dims = None, keep: bool = False, *, dtype: torch.dtype | None = None
) -> jax.Array:
    """A norm over dimensions, with gradient 0 where it is 0."""
    x = wide(accumulator(x, dtype))
    axes = axes_of(x, dims)
    if order == 2:
        return safe_sqrt(jnp.sum(jnp.square(x), axes, keepdims=keep))
    if order == 0:
        return jnp.sum((x != 0).astype(x.dtype), axes, keepdims=keep)
    size = absolute(x)
    if order == math.inf:
        return jnp.max(size, axes, keepdims=keep)
    if order == -math.inf:
        return jnp.min(size, axes, keepdims=keep)
    if order == 1:
        return jnp.sum(size, axes, keepdims=keep)
    if order < 0:
        return jnp.power(jnp.sum(jnp.power(size, order), axes, keepdims=keep), 1 / order)
    total = jnp.sum(safe_power(size, order), axes, keepdims=keep)
    return safe_power(total, 1 / order)


@op(aten.logsumexp)
def _logsumexp(x: jax.Array, dims: Dims, keep: bool = False) -> jax.Array:
    x = wide(x)
    return jax.scipy.special.logsumexp(x, axis=axes_of(x, dims), keepdims=keep)


def _running(function: Callable) -> Callable:
    def run(x: jax.Array, dim: int, *, dtype: torch.dtype | None = None) -> jax.Array:
        x = accumulator(x, dtype)
        return function(x, axis=dim % x.ndim) if x.ndim else x

    return run


op(aten.cumsum)(_running(lax.cumsum))
op(aten.cumprod)(_running(lax.cumprod))
op(aten.logcumsumexp)(_running(lax.cumlogsumexp))


def _running_winner(better: Callable) -> Callable:
    def run(x: jax.Array, dim: int) -> tuple[jax.Array, jax.Array]:
        if not x.ndim:
            return x, jnp.zeros((), jnp.int32)
        axis = dim % x.ndim
        index = lax.broadcasted_iota(jnp.int32, x.shape, axis)

        def later(a: Any, b: Any) -> Any:
            takes = better(b[0], a[0]) | (jnp.isnan(b[0]) if is_float(x) else False)
            return jnp.where(takes, b[0], a[0]), jnp.where(takes, b[1], a[1])

        _, winners = lax.associative_scan(later, (lax.stop_gradient(x), index), axis=axis)
        return jnp.take_along_axis(x, winners, axis=axis), winners

    return run


op(aten.cummax)(_running_winner(jnp.greater_equal))
op(aten.cummin)(_running_winner(jnp.less_equal))
