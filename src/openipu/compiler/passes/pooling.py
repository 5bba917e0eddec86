"""Pooling and its gradients as slices, comparisons and reductions instead of window loops, or as a native kernel."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import attrs
import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from openipu.compiler.native.pooling import Side
from openipu.compiler.passes import native_pooling
from openipu.compiler.passes.jaxprs import aval_of
from openipu.compiler.passes.layout import Stored

if TYPE_CHECKING:
    from openipu.compiler.passes.rewriter import Rewriter

# Beyond these many positions a window is cheaper as XLA's loop than as that many slices.
_LONGEST_SIDE = 32
_LARGEST_WINDOW = 64


@dataclass(frozen=True)
class _Side:
    """One dimension of a window."""

    size: int
    stride: int
    low: int
    high: int
    base: int
    dilation: int

    @property
    def trivial(self) -> bool:
        return (self.size, self.stride, self.low, self.high, self.base) == (1, 1, 0, 0, 1)

    def padded(self, length: int) -> int:
        return self.low + (length - 1) * self.base + 1 + self.high

    def windows(self, length: int) -> int:
        return (self.padded(length) - (self.size - 1) * self.dilation - 1) // self.stride + 1


def _reduce_window(combine: Callable, reduce: Callable, neutral: Callable) -> Callable:
    def rule(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
        source = rewriter.stored(eqn.invars[0])
        names = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
        columns = zip(*(eqn.params[name] for name in names), strict=True)
        sides = [_Side(size, stride, low, high, base, dil) for size, stride, (low, high), base, dil in columns]
        lengths = source.shape
        if 0 in lengths or 0 in aval_of(eqn.outvars[0]).shape:
            return None
        if any(side.size > _LONGEST_SIDE and side.windows(n) > 1 for side, n in zip(sides, lengths, strict=True)):
            return None
        dtype = aval_of(eqn.outvars[0]).dtype

        def pool(x: jax.Array) -> jax.Array:
            # Half-precision sums would otherwise round once for each dimension.
            if reduce is _sum and dtype.itemsize < 4 and jnp.issubdtype(dtype, jnp.floating):
                x = x.astype(jnp.float32)
            for dim in sorted(range(len(sides)), key=lambda dim: sides[dim].windows(lengths[dim]) - lengths[dim]):
                if not sides[dim].trivial:
                    x = _pool_side(x, source.position[dim], sides[dim], combine, reduce, neutral(x.dtype))
            return x.astype(dtype)

        return [Stored(rewriter.emit(pool, source.atom), source.order)]

    return rule


def _pool_side(
    x: jax.Array, axis: int, side: _Side, combine: Callable, reduce: Callable, neutral: jax.Array
) -> jax.Array:
    """Pools one dimension; windows are separable, so a pooling is one of these after the other."""
    length = x.shape[axis]
    count = side.windows(length)
    if side.base > 1 and side.stride == 1:
        # Few of the dilated positions hold data, so each input is put where it counts instead.
        parts = []
        for offset in range(side.size):
            low = side.low - offset * side.dilation
            high = count - low - ((length - 1) * side.base + 1)
            parts.append(_pad(x, axis, low, high, side.base - 1, neutral))
        return _tree(combine, parts)
    x = _pad(x, axis, side.low, side.high, side.base - 1, neutral)
    if count == 1:
        return lax.expand_dims(reduce(_span(x, axis, 0, side.size, side.dilation), axis), [axis])
    parts = [_span(x, axis, offset * side.dilation, count, side.stride) for offset in range(side.size)]
    return _tree(combine, parts)


def _span(x: jax.Array, axis: int, start: int, count: int, stride: int) -> jax.Array:
    if start == 0 and count == x.shape[axis] and stride == 1:
        return x
    return lax.slice_in_dim(x, start, start + (count - 1) * stride + 1, stride, axis)


def _pad(x: jax.Array, axis: int, low: int, high: int, interior: int, value: jax.Array) -> jax.Array:
    if low == high == interior == 0:
        return x
    config = [(0, 0, 0)] * x.ndim
    config[axis] = (low, high, interior)
    return lax.pad(x, value, config)


def _tree(combine: Callable, parts: list[jax.Array]) -> jax.Array:
    while len(parts) > 1:
        pairs = [combine(*parts[i : i + 2]) for i in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def _sum(x: jax.Array, axis: int) -> jax.Array:
    return lax.reduce_sum_p.bind(x, axes=(axis,), out_sharding=None)


def _max(x: jax.Array, axis: int) -> jax.Array:
    return lax.reduce_max_p.bind(x, axes=(axis,), out_sharding=None)


def _min(x: jax.Array, axis: int) -> jax.Array:
    return lax.reduce_min_p.bind(x, axes=(axis,), out_sharding=None)


def _lowest(dtype: jnp.dtype) -> jax.Array:
    return jnp.asarray(-jnp.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min, dtype)


def _highest(dtype: jnp.dtype) -> jax.Array:
    return jnp.asarray(jnp.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).max, dtype)


def _zero(dtype: jnp.dtype) -> jax.Array:
    return jnp.asarray(0, dtype)


def _select_and_scatter_add(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    gradient, operand = eqn.invars
    sizes, strides, padding = (eqn.params[name] for name in ("window_dimensions", "window_strides", "padding"))
    if math.prod(sizes) > _LARGEST_WINDOW or 0 in aval_of(operand).shape or 0 in aval_of(gradient).shape:
        return None
    if eqn.params["select_prim"].name not in ("ge", "le"):
        return None
    stored = rewriter.stored(operand)
    ascending = eqn.params["select_prim"].name == "ge"
    if ascending:
        columns = zip(aval_of(operand).shape, aval_of(gradient).shape, sizes, strides, padding, strict=True)
        sides = [Side(n, count, size, stride, low) for n, count, size, stride, (low, _) in columns]
        called = native_pooling.maximum_gradient(rewriter, gradient, operand, sides)
        if called is not None:
            return called
    source = rewriter.ordered(gradient, stored.order)

    def scatter(source: jax.Array, operand: jax.Array) -> jax.Array:
        def physical(values: tuple[int, ...]) -> list[int]:
            return [values[dim] for dim in stored.order]

        # The window is searched in the program's order of dimensions: that decides which of equal values is first.
        offsets = [physical(offset) for offset in itertools.product(*(range(size) for size in sizes))]
        lows = physical(tuple(low for low, _ in padding))
        windows = _Windows(offsets, lows, physical(strides), physical(sizes))
        winner = _first_winner(operand, source.shape, windows, ascending)
        if all(span <= step for span, step in zip(windows.spans, windows.steps, strict=True)):
            return _place_apart(source, winner, operand.shape, windows)
        return _place_overlapping(source, winner, operand.shape, windows)

    return [Stored(rewriter.emit(scatter, source, stored.atom), stored.order)]


@attrs.frozen(eq=False)
class _Windows:
    """Windows over an operand, by its dimensions as they are stored.

    Attributes:
      offsets: the places within a window, in the order in which they are searched.
      lows: padding before the operand.
      steps: from one window to the next.
      spans: the size of a window.
    """

    offsets: list[list[int]]
    lows: list[int]
    steps: list[int]
    spans: list[int]


def _first_winner(operand: jax.Array, shape: tuple[int, ...], windows: _Windows, ascending: bool) -> jax.Array:
    """Returns for each window the number of the first offset that wins."""
    offsets, lows, steps = windows.offsets, windows.lows, windows.steps
    reach = [(n - 1) * step + 1 + last for n, step, last in zip(shape, steps, offsets[-1], strict=True)]
    config = [(low, end - low - n, 0) for low, end, n in zip(lows, reach, operand.shape, strict=True)]
    if any(c != (0, 0, 0) for c in config):
        # Padding takes part in the search, as it does in the equation's own lowering for CPU.
        operand = lax.pad(operand, (_lowest if ascending else _highest)(operand.dtype), config)
    better = lax.ge if ascending else lax.le
    best = winner = None
    for number, offset in enumerate(offsets):
        limits = [o + (n - 1) * step + 1 for o, n, step in zip(offset, shape, steps, strict=True)]
        value = lax.slice(operand, offset, limits, steps)
        # As wide as the values, so that comparisons and choices fill the same vectors.
        index = lax.full(shape, number, jnp.int32)
        if best is None or winner is None:
            best, winner = value, index
            continue
        stays = better(best, value)
        best, winner = lax.select(stays, best, value), lax.select(stays, winner, index)
    assert winner is not None
    return winner


def _place_apart(source: jax.Array, winner: jax.Array, shape: tuple[int, ...], windows: _Windows) -> jax.Array:
    """Spreads each window's gradient over the window and keeps it at the winner: one loop, no scatter."""
    steps, spans = windows.steps, windows.spans
    wide = [size for n, step in zip(source.shape, steps, strict=True) for size in (n, step)]
    where = tuple(range(0, 2 * len(steps), 2))
    number = lax.full(wide, 0, jnp.int32)
    beyond = lax.full(wide, False, jnp.bool_)
    for dim, (span, step) in enumerate(zip(spans, steps, strict=True)):
        offset = lax.broadcasted_iota(jnp.int32, wide, 2 * dim + 1)
        if span > 1:
            # How far the number of an offset moves when this dimension moves by one.
            weight = next(i for i, o in enumerate(windows.offsets) if o[dim] == 1)
            number = number + offset * jnp.int32(weight)
        if span < step:
            beyond = lax.bitwise_or(beyond, lax.ge(offset, lax.full(wide, span, jnp.int32)))
    chosen = lax.eq(lax.broadcast_in_dim(winner, wide, where), number)
    if any(span < step for span, step in zip(spans, steps, strict=True)):
        chosen = lax.bitwise_and(chosen, lax.bitwise_not(beyond))
    spread = lax.select(chosen, lax.broadcast_in_dim(source, wide, where), lax.full(wide, 0, source.dtype))
    spread = lax.reshape(spread, [n * step for n, step in zip(source.shape, steps, strict=True)])
    config = [(-low, n - (have - low), 0) for low, n, have in zip(windows.lows, shape, spread.shape, strict=True)]
    return spread if all(c == (0, 0, 0) for c in config) else lax.pad(spread, _zero(spread.dtype), config)


def _place_overlapping(source: jax.Array, winner: jax.Array, shape: tuple[int, ...], windows: _Windows) -> jax.Array:
    """Adds up what each offset of the window sends to the operand."""
    half = source.dtype.itemsize < 4 and jnp.issubdtype(source.dtype, jnp.floating)
    wide = source.astype(jnp.float32) if half else source
    parts = []
    for number, offset in enumerate(windows.offsets):
        part = lax.select(lax.eq(winner, lax.full(winner.shape, number, jnp.int32)), wide, lax.full_like(wide, 0))
        config = []
        for n, low, step, o, count in zip(shape, windows.lows, windows.steps, offset, source.shape, strict=True):
            start = o - low
            config.append((start, n - start - ((count - 1) * step + 1), step - 1))
        parts.append(lax.pad(part, _zero(part.dtype), config))
    return _tree(lax.add, parts).astype(source.dtype)


RULES = {
    "reduce_window_max": _reduce_window(lax.max, _max, _lowest),
    "reduce_window_min": _reduce_window(lax.min, _min, _highest),
    "reduce_window_sum": _reduce_window(lax.add, _sum, _zero),
    "select_and_scatter_add": _select_and_scatter_add,
}
