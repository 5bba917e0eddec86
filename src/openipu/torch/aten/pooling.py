"""Pooling over windows, fixed and adaptive."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from openipu.torch.aten.dtypes import is_float, wide
from openipu.torch.aten.registry import Context, op

aten = torch.ops.aten


@attrs.frozen
class Window:
    """The geometry of a pooling over the trailing dimensions; every field has one entry for each of them."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    source: tuple[int, ...]
    result: tuple[int, ...]

    @classmethod
    def make(
        cls,
        x: jax.Array,
        result: Sequence[int],
        size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int] = (1,),
    ) -> "Window":
        """From torch's arguments, in which one number stands for all dimensions and no stride for the window's size."""
        rank = _rank(x, result, size, stride or size)
        size, padding, dilation = (_spread(values, rank) for values in (size, padding, dilation))
        stride = _spread(stride, rank) if stride else size
        return cls(size, stride, padding, dilation, x.shape[-rank:], tuple(result[-rank:]))

    @property
    def pads(self) -> list[tuple[int, int]]:
        """Padding before and behind; negative behind, where the last window ends early."""
        columns = zip(self.size, self.stride, self.padding, self.dilation, self.source, self.result, strict=True)
        return [(p, (out - 1) * s + (k - 1) * d + 1 - n - p) for k, s, p, d, n, out in columns]


def _rank(x: jax.Array, result: Sequence[int], *values: Sequence[int]) -> int:
    changed = [i for i in range(x.ndim) if x.shape[i] != result[i]]
    return max(*(len(v) for v in values), x.ndim - changed[0] if changed else 1)


def _spread(values: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(values) * rank if len(values) == 1 else tuple(values)


def _fit(x: jax.Array, pads: list[tuple[int, int]]) -> tuple[jax.Array, list[tuple[int, int]]]:
    """Crop what no window covers, so that all padding left is positive."""
    lead = x.ndim - len(pads)
    limits = [n + min(high, 0) for n, (_, high) in zip(x.shape[lead:], pads, strict=True)]
    x = lax.slice(x, (0,) * x.ndim, (*x.shape[:lead], *limits))
    return x, [(low, max(high, 0)) for low, high in pads]


def _reduce(x: jax.Array, window: Window, neutral: Any, combine: Any) -> jax.Array:
    x, pads = _fit(x, window.pads)
    ones = (1,) * (x.ndim - len(pads))
    return lax.reduce_window(
        x,
        neutral,
        combine,
        (*ones, *window.size),
        (*ones, *window.stride),
        [(0, 0)] * len(ones) + pads,
        window_dilation=(*ones, *window.dilation),
    )


def _lowest(x: jax.Array) -> Any:
    return -np.inf if is_float(x) else np.iinfo(x.dtype).min


@op(aten.max_pool2d_with_indices, aten.max_pool3d_with_indices, context=True)
def _max_pool(
    context: Context,
    x: jax.Array,
    size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[jax.Array, Any]:
    shape = context.value[0].shape
    rank = 3 if "3d" in str(context.node.target) else 2
    window = Window.make(x, shape, _spread(size, rank), stride, padding, dilation)
    if context.uses(1) or any(d > 1 for d in window.dilation):
        return _max_with_index(x, window)
    return _reduce(x, window, np.asarray(_lowest(x), x.dtype)[()], lax.max), None


def _max_with_index(x: jax.Array, window: Window) -> tuple[jax.Array, jax.Array]:
    """Maxima and their positions in the flat plane; the first of equal ones wins."""
    lead = x.ndim - len(window.size)
    fitted, pads = _fit(x, window.pads)
    config = [(0, 0, 0)] * lead + [(low, high, 0) for low, high in pads]
    padded = lax.pad(fitted, jnp.asarray(_lowest(x), x.dtype), config)
    values, places = [], []
    strides = (1,) * lead + window.stride
    for offset in itertools.product(*(range(size) for size in window.size)):
        start = [o * d for o, d in zip(offset, window.dilation, strict=True)]
        last = [b + (n - 1) * s + 1 for b, n, s in zip(start, window.result, window.stride, strict=True)]
        values.append(lax.slice(padded, [0] * lead + start, [*x.shape[:lead], *last], strides))
        places.append(_flat_places(start, window))
    stacked = jnp.stack(values)
    winner = jnp.argmax(stacked, axis=0)[None]
    value = jnp.take_along_axis(stacked, winner, axis=0)[0]
    table = jnp.asarray(np.stack(places)).reshape(len(places), *(1,) * lead, *window.result)
    table = jnp.broadcast_to(table, stacked.shape)
    return value, jnp.take_along_axis(table, winner, axis=0)[0]


def _flat_places(start: Sequence[int], window: Window) -> np.ndarray:
    flat = np.zeros(window.result, np.int32)
    for dim, (begin, size) in enumerate(zip(start, window.source, strict=True)):
        along = begin + np.arange(window.result[dim]) * window.stride[dim] - window.padding[dim]
        flat = flat * size + along.reshape([-1 if i == dim else 1 for i in range(len(window.result))])
    return flat.astype(np.int32)


@op(aten.avg_pool1d, aten.avg_pool2d, aten.avg_pool3d, context=True)
def _avg_pool(
    context: Context,
    x: jax.Array,
    size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> jax.Array:
    rank = int(str(context.node.target).split("avg_pool")[1][0])
    window = Window.make(x, context.shape, _spread(size, rank), stride, padding)
    data = wide(x) if is_float(x) else x
    total = _reduce(data, window, np.zeros((), data.dtype)[()], lax.add)
    return total / jnp.asarray(divisor or _counts(window, count_include_pad), total.dtype)


def _counts(window: Window, with_padding: bool) -> Any:
    """How many elements each window averages; a single number where all are alike."""
    counts = np.ones(())
    columns = zip(window.size, window.stride, window.padding, window.source, window.result, strict=True)
    for size, stride, pad, length, out in columns:
        start = np.arange(out) * stride - pad
        end = np.minimum(start + size, length + pad)
        covered = end - start if with_padding else np.minimum(end, length) - np.maximum(start, 0)
        counts = counts[..., None] * covered
    return float(counts.flat[0]) if (counts == counts.flat[0]).all() else counts


@op(aten._adaptive_avg_pool2d, aten._adaptive_avg_pool3d, aten.adaptive_avg_pool1d, context=True)
def _adaptive_avg_pool(context: Context, x: jax.Array, size: Sequence[int]) -> jax.Array:
    data = wide(x)
    rank = len(size)
    sources = x.shape[-rank:]
    if all(n % out == 0 for n, out in zip(sources, size, strict=True)):
        steps = tuple(n // out for n, out in zip(sources, size, strict=True))
        if all(out == 1 for out in size):
            return jnp.mean(data, tuple(range(x.ndim - rank, x.ndim)), keepdims=True)
        window = Window.make(x, context.shape, steps, steps, (0,))
        return _reduce(data, window, np.zeros((), data.dtype)[()], lax.add) / math.prod(steps)
    for number, (n, out) in enumerate(zip(sources, size, strict=True)):
        dim = x.ndim - rank + number
        weights = np.zeros((n, out), data.dtype)
        for i, (start, end) in enumerate(_adaptive_bounds(n, out)):
            weights[start:end, i] = 1 / (end - start)
        data = jnp.moveaxis(jnp.tensordot(data, weights, ([dim], [0])), -1, dim)
    return data


def _adaptive_bounds(length: int, out: int) -> list[tuple[int, int]]:
    return [(i * length // out, -((-(i + 1) * length) // out)) for i in range(out)]


@op(aten.adaptive_max_pool2d, aten.adaptive_max_pool3d)
def _adaptive_max_pool(x: jax.Array, size: Sequence[int]) -> tuple[jax.Array, jax.Array]:
    rank = len(size)
    sources = x.shape[-rank:]
    bounds = [_adaptive_bounds(n, out) for n, out in zip(sources, size, strict=True)]
    flat = x.reshape(*x.shape[:-rank], math.prod(sources))
    plane = np.arange(math.prod(sources), dtype=np.int32).reshape(sources)
    regions = [plane[tuple(slice(*b) for b in cell)].reshape(-1) for cell in itertools.product(*bounds)]
    longest = max(len(region) for region in regions)
    # Short regions are filled up with their first place, which changes no maximum and no first winner.
    table = np.stack([np.concatenate([np.full(longest - len(r), r[0], np.int32), r]) for r in regions])
    windows = jnp.take(flat, table, axis=-1)
    winner = jnp.argmax(windows, axis=-1, keepdims=True)
    value = jnp.take_along_axis(windows, winner, axis=-1)[..., 0]
    place = jnp.take_along_axis(jnp.broadcast_to(table, windows.shape), winner, axis=-1)[..., 0]
    shape = (*x.shape[:-rank], *size)
    return value.reshape(shape), place.reshape(shape)
