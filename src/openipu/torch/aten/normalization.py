"""Normalisation over batch, layer and groups."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch
from jax import lax

from openipu.compiler.normalization import normalised
from openipu.torch.aten.dtypes import wide
from openipu.torch.aten.registry import op

aten = torch.ops.aten

Optional = jax.Array | None


def _moments(x: jax.Array, axes: Sequence[int]) -> tuple[jax.Array, jax.Array]:
    mean = jnp.mean(x, axes, keepdims=True)
    return mean, jnp.mean(jnp.square(x - mean), axes, keepdims=True)


def _per_channel(values: jax.Array, rank: int) -> jax.Array:
    return wide(values).reshape(1, -1, *(1,) * (rank - 2))


def _affine(x: jax.Array, weight: Optional, bias: Optional) -> jax.Array:
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias


@op(aten._native_batch_norm_legit_functional)
def _batch_norm(
    x: jax.Array,
    weight: Optional,
    bias: Optional,
    running_mean: jax.Array,
    running_var: jax.Array,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Optional, ...]:
    if not training:
        return (
            *_batch_norm_fixed(x, weight, bias, running_mean, running_var, momentum, eps),
            running_mean,
            running_var,
        )
    result, mean, inverse, var = _batch_statistics(x, weight, bias, eps)
    count = x.size // x.shape[1]
    unbiased = var * (count / max(count - 1, 1))
    new_mean = _moved(running_mean, mean, momentum)
    return result, mean, inverse, new_mean, _moved(running_var, unbiased, momentum)


def _moved(old: jax.Array, value: jax.Array, momentum: float) -> jax.Array:
    return (wide(old) * (1 - momentum) + value * momentum).astype(old.dtype)


@op(aten._native_batch_norm_legit.no_stats)
def _batch_norm_no_stats(
    x: jax.Array, weight: Optional, bias: Optional, training: bool, momentum: float, eps: float
) -> tuple[jax.Array, ...]:
    return _batch_statistics(x, weight, bias, eps)[:3]


def _batch_statistics(x: jax.Array, weight: Optional, bias: Optional, eps: float) -> tuple[jax.Array, ...]:
    data = wide(x)
    scale = jnp.ones(x.shape[1], data.dtype) if weight is None else weight.astype(data.dtype)
    shift = jnp.zeros(x.shape[1], data.dtype) if bias is None else bias.astype(data.dtype)
    result, mean, var = normalised(data, scale, shift, eps, axis=1)
    return result, mean, lax.rsqrt(var + eps), var


@op(aten._native_batch_norm_legit_no_training)
def _batch_norm_fixed(
    x: jax.Array,
    weight: Optional,
    bias: Optional,
    running_mean: jax.Array,
    running_var: jax.Array,
    momentum: float,
    eps: float,
) -> tuple[jax.Array, None, None]:
    mean, var = (_per_channel(v, x.ndim) for v in (running_mean, running_var))
    scale, shift = (None if v is None else _per_channel(v, x.ndim) for v in (weight, bias))
    result = _affine((wide(x) - mean) * lax.rsqrt(var + eps), scale, shift)
    # Nobody reads the saved statistics of an evaluation.
    return result, None, None


@op(aten.native_layer_norm)
def _layer_norm(
    x: jax.Array, shape: Sequence[int], weight: Optional, bias: Optional, eps: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    data = wide(x)
    mean, var = _moments(data, range(x.ndim - len(shape), x.ndim))
    inverse = lax.rsqrt(var + eps)
    return _affine((data - mean) * inverse, weight, bias), mean, inverse


@op(aten.native_group_norm)
def _group_norm(
    x: jax.Array, weight: Optional, bias: Optional, n: int, c: int, space: int, groups: int, eps: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    data = wide(x).reshape(n, groups, c // groups * space)
    mean, var = _moments(data, [2])
    inverse = lax.rsqrt(var + eps)
    result = ((data - mean) * inverse).reshape(x.shape)
    scale, shift = (None if v is None else _per_channel(v, x.ndim) for v in (weight, bias))
    return _affine(result, scale, shift), mean.reshape(n, groups), inverse.reshape(n, groups)


@op(aten._fused_rms_norm)
def _rms_norm(x: jax.Array, shape: Sequence[int], weight: Optional, eps: float | None) -> tuple[jax.Array, jax.Array]:
    data = wide(x)
    eps = float(jnp.finfo(data.dtype).eps) if eps is None else eps
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    inverse = lax.rsqrt(jnp.sum(jnp.square(data), axes, keepdims=True) / math.prod(shape) + eps)
    return _affine(data * inverse, weight, None), inverse
