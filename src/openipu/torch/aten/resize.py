"""Resampling of images: nearest, linear and cubic, each dimension on its own."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from openipu.torch.aten.dtypes import is_float, wide
from openipu.torch.aten.registry import Context, op

aten = torch.ops.aten

# The parameter of torch's cubic kernel.
_CUBIC = -0.75


# Scales come as one number for each dimension, or as a list of them.
Scales = float | Sequence[float] | None


def _factors(scales: Sequence[Scales], rank: int) -> list[float | None]:
    flat: list[float | None] = []
    for scale in scales:
        flat.extend([scale] if scale is None or isinstance(scale, float | int) else list(scale))
    return flat if len(flat) == rank else [None] * rank


def _ratio(source: int, result: int, scale: float | None) -> float:
    return 1 / scale if scale is not None and scale > 0 else source / result


def _nearest(shift: float) -> Callable:
    """The nearest neighbour, looked for from each pixel's corner (shift 0) or centre (shift 1/2)."""

    def run(context: Context, x: jax.Array, size: Sequence[int] | None, *scales: Scales) -> jax.Array:
        rank = len(context.shape) - 2
        factors = _factors(scales, rank)
        for number in range(rank):
            dim = 2 + number
            source, result = x.shape[dim], context.shape[dim]
            # In float32 as torch does, so that ties fall on the same side.
            ratio = np.float32(_ratio(source, result, factors[number]))
            places = np.floor((np.arange(result, dtype=np.float32) + np.float32(shift)) * ratio).astype(np.int64)
            x = _picked(x, np.minimum(places, source - 1), dim)
        return x

    return run


def _picked(x: jax.Array, places: np.ndarray, dim: int) -> jax.Array:
    source, result = x.shape[dim], len(places)
    if result % source == 0 and (places == np.arange(result) // (result // source)).all():
        # Whole repetition needs no gather, and its gradient no scatter.
        return jnp.repeat(x, result // source, axis=dim)
    return jnp.take(x, places, axis=dim)


op(aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d, context=True)(_nearest(0.0))
op(
    aten._upsample_nearest_exact1d,
    aten._upsample_nearest_exact2d,
    aten._upsample_nearest_exact3d,
    context=True,
)(_nearest(0.5))


def _linear_weights(source: int, result: int, align: bool, scale: float | None) -> np.ndarray:
    """The matrix [source, result] that interpolates linearly along one dimension."""
    place = np.maximum(_places(source, result, align, scale), 0)
    low = np.minimum(np.floor(place).astype(int), source - 1)
    high = np.minimum(low + 1, source - 1)
    part = place - low
    weights = np.zeros((source, result))
    np.add.at(weights, (low, np.arange(result)), 1 - part)
    np.add.at(weights, (high, np.arange(result)), part)
    return weights


def _cubic_weights(source: int, result: int, align: bool, scale: float | None) -> np.ndarray:
    """The matrix [source, result] of cubic convolution along one dimension."""
    place = _places(source, result, align, scale)
    base = np.floor(place).astype(int)
    weights = np.zeros((source, result))
    for offset in range(-1, 3):
        distance = np.abs(place - (base + offset))
        near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance**2 + 1
        far = ((_CUBIC * distance - 5 * _CUBIC) * distance + 8 * _CUBIC) * distance - 4 * _CUBIC
        value = np.where(distance <= 1, near, far)
        np.add.at(weights, (np.clip(base + offset, 0, source - 1), np.arange(result)), value)
    return weights


def _places(source: int, result: int, align: bool, scale: float | None) -> np.ndarray:
    """Where in the source each pixel of the result lies."""
    if align:
        return np.arange(result) * ((source - 1) / (result - 1) if result > 1 else 0.0)
    return (np.arange(result) + 0.5) * _ratio(source, result, scale) - 0.5


def _interpolated(kernel: Callable) -> Callable:
    def run(context: Context, x: jax.Array, size: Sequence[int] | None, align: bool, *scales: Scales) -> jax.Array:
        rank = len(context.shape) - 2
        factors = _factors(scales, rank)
        data = wide(x) if is_float(x) else x.astype(jnp.float32)
        for number in range(rank):
            dim = 2 + number
            weights = kernel(x.shape[dim], context.shape[dim], align, factors[number])
            data = _weighted(data, weights.astype(data.dtype), dim)
        return data if is_float(x) else jnp.round(data)

    return run


def _weighted(x: jax.Array, weights: Any, dim: int) -> jax.Array:
    return jnp.moveaxis(jnp.tensordot(x, weights, ([dim], [0])), -1, dim)


op(aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d, context=True)(
    _interpolated(_linear_weights)
)
op(aten.upsample_bicubic2d, context=True)(_interpolated(_cubic_weights))
