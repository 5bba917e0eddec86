"""Three ways to compute a convolution with matrix products, and what each costs.

All take operands with a leading group dimension. With the batch innermost these are

    lhs (group, features, *space, batch)      rhs (group, outputs, *kernel, features)

and otherwise the second and the last dimension change places. `FilterGradient` reads the same arrays with the names
a gradient gives them: what it calls batch are the features of the layer, what it sums over is the layer's batch.
"""

import itertools
import math
from dataclasses import dataclass

import jax
import jax.custom_batching
from jax import lax
from jax.typing import DTypeLike

# One element copied into patches takes as long as about this many multiply-adds in XLA's matrix product.
COPY = 13
# Patches of a padded input are copied with a test for each row.
_PADDED = 17
# Starting a row of patches takes as long as copying this many elements.
_ROW = 32


@dataclass(frozen=True)
class Geometry:
    """Sizes of a convolution; `batch`, `inputs` and `outputs` count what one group has."""

    groups: int
    batch_grouped: bool
    batch: int
    inputs: int
    outputs: int
    space: tuple[int, ...]
    kernel: tuple[int, ...]
    windows: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]

    @property
    def depthwise(self) -> bool:
        """Whether a product has nothing to sum over but the kernel, so that there is no matrix in it."""
        return self.inputs == 1 and self.outputs == 1 and self.groups > 1

    @property
    def padded(self) -> bool:
        """Whether the input needs padding or dilation before it is cut into patches."""
        return any(low > 0 or high > 0 for low, high in self.padding) or any(d > 1 for d in self.lhs_dilation)


def _copy(row: int, padded: bool) -> float:
    """Returns the time to copy one element of rows this long, in multiply-adds."""
    return (COPY + _PADDED * padded) * (1 + _ROW / row)


def _pad_space(x: jax.Array, config: list[tuple[int, int, int]]) -> jax.Array:
    if all(c == (0, 0, 0) for c in config):
        return x
    return lax.pad(x, jax.numpy.zeros((), x.dtype), [(0, 0, 0), (0, 0, 0), *config, (0, 0, 0)])


def _whole_input(x: jax.Array, g: Geometry) -> jax.Array:
    """Returns the input padded and dilated, as long as the windows reach."""
    return _pad_space(x, [(low, high, d - 1) for (low, high), d in zip(g.padding, g.lhs_dilation, strict=True)])


def _spans(x: jax.Array, axis: int, offsets: int, step: int, count: int, stride: int) -> list[jax.Array]:
    """Returns for each offset the `count` elements, `stride` apart, that start at offset times `step`."""
    if offsets == 1 and stride == 1 and count == x.shape[axis]:
        return [x]
    return [lax.slice_in_dim(x, o * step, o * step + (count - 1) * stride + 1, stride, axis) for o in range(offsets)]


def _patches(
    x: jax.Array,
    channel: int,
    offsets: tuple[int, ...],
    steps: tuple[int, ...],
    counts: tuple[int, ...],
    strides: tuple[int, ...],
) -> jax.Array:
    """Returns all shifted copies of the input side by side in its channel dimension, offsets outermost.

    One dimension after the other, last one first: fewer and longer copies than one for every offset.
    """
    for d in reversed(range(len(offsets))):
        spans = _spans(x, 2 + d, offsets[d], steps[d], counts[d], strides[d])
        x = spans[0] if len(spans) == 1 else lax.concatenate(spans, channel)
    return x


def _product(
    a: jax.Array,
    b: jax.Array,
    contract: tuple[tuple[int, ...], tuple[int, ...]],
    accumulate: DTypeLike,
    precision: lax.PrecisionLike,
) -> jax.Array:
    """Returns the product of two arrays for each group; without groups it is a plain matrix product."""
    if a.shape[0] > 1:
        return lax.dot_general(a, b, (contract, ((0,), (0,))), precision=precision, preferred_element_type=accumulate)
    a, b = lax.squeeze(a, [0]), lax.squeeze(b, [0])
    numbers = (tuple(d - 1 for d in contract[0]), tuple(d - 1 for d in contract[1]))
    y = lax.dot_general(a, b, (numbers, ((), ())), precision=precision, preferred_element_type=accumulate)
    return lax.expand_dims(y, [0])


def _merge_groups(y: jax.Array, batch_inner: bool) -> jax.Array:
    """Returns (group, features, ...) or (group, ..., features) with group and features as one dimension."""
    if batch_inner:
        return lax.reshape(y, (y.shape[0] * y.shape[1], *y.shape[2:]))
    y = lax.transpose(y, (*range(1, y.ndim - 1), 0, y.ndim - 1))
    return lax.reshape(y, (*y.shape[:-2], y.shape[-2] * y.shape[-1]))


class Gather:
    """Patches of the input times the kernel: for layers with few input features."""

    def lhs_leading(self, g: Geometry) -> int:
        """Which of (batch, features) is the layer's feature dimension: stored first when the batch is innermost."""
        return 1

    def batch(self, g: Geometry) -> int:
        """The layer's batch size."""
        return g.batch

    def out_order(self, batch_inner: bool, rank: int) -> tuple[int, ...]:
        """Order of the result, with 0 for batch, 1 for features, 2... for space."""
        space = range(2, 2 + rank)
        return (1, *space, 0) if batch_inner else (0, *space, 1)

    def patch_elements(self, g: Geometry) -> int:
        """How many elements the patches have."""
        return g.groups * math.prod(g.kernel) * g.inputs * math.prod(g.windows) * g.batch

    def cost(self, g: Geometry) -> float:
        """Time in multiply-adds."""
        if g.depthwise:
            return self.patch_elements(g) * math.prod(g.lhs_dilation)
        copy = 0 if math.prod(g.kernel) == 1 else _copy(g.windows[-1] * g.batch, g.padded)
        return self.patch_elements(g) * (g.outputs + copy)

    def compute(
        self,
        x: jax.Array,
        w: jax.Array,
        g: Geometry,
        batch_inner: bool,
        accumulate: DTypeLike,
        precision: lax.PrecisionLike,
    ) -> jax.Array:
        """Returns the convolution, stored in `out_order`."""
        channel = 1 if batch_inner else x.ndim - 1
        x = _whole_input(x, g)
        if g.depthwise:
            return _merge_groups(_depthwise(x, w, g, accumulate), batch_inner)
        p = _patches(x, channel, g.kernel, g.rhs_dilation, g.windows, g.strides)
        rank = len(g.kernel)
        if batch_inner:
            w = lax.reshape(w, (g.groups, g.outputs, p.shape[1]))
            y = _product(w, p, ((2,), (1,)), accumulate, precision)
        else:
            w = lax.transpose(w, (0, *range(2, 2 + rank), 1, 2 + rank))
            w = lax.reshape(w, (g.groups, p.shape[-1], g.outputs))
            y = _product(p, w, ((p.ndim - 1,), (1,)), accumulate, precision)
        return _merge_groups(y, batch_inner)


def _depthwise(x: jax.Array, w: jax.Array, g: Geometry, accumulate: DTypeLike) -> jax.Array:
    """Returns the sum of shifted inputs times kernel elements: one loop over the output."""
    w = lax.reshape(w, (g.groups, *g.kernel))
    total = None
    for offset in itertools.product(*(range(k) for k in g.kernel)):
        part = x
        for d, o in enumerate(offset):
            start = o * g.rhs_dilation[d]
            part = lax.slice_in_dim(part, start, start + (g.windows[d] - 1) * g.strides[d] + 1, g.strides[d], 2 + d)
        factor = lax.squeeze(lax.slice(w, (0, *offset), (g.groups, *(o + 1 for o in offset))), range(1, w.ndim))
        term = part.astype(accumulate) * lax.broadcast_in_dim(factor.astype(accumulate), part.shape, (0,))
        total = term if total is None else total + term
    assert total is not None
    return total


class Scatter(Gather):
    """The kernel times the input, added up where it belongs: for input gradients, dilated or wider than they came."""

    def patch_elements(self, g: Geometry) -> int:
        """How many elements are to be added up."""
        return g.groups * math.prod(g.kernel) * g.outputs * math.prod(g.space) * g.batch

    def cost(self, g: Geometry) -> float:
        """Time in multiply-adds."""
        if any(s > 1 for s in g.strides):
            return math.inf
        if g.depthwise:
            return self.patch_elements(g) * 2
        copy = 0 if math.prod(g.kernel) == 1 else _copy(g.space[-1] * g.batch, padded=False)
        return self.patch_elements(g) * (g.inputs + copy)

    def compute(
        self,
        x: jax.Array,
        w: jax.Array,
        g: Geometry,
        batch_inner: bool,
        accumulate: DTypeLike,
        precision: lax.PrecisionLike,
    ) -> jax.Array:
        """Returns the convolution, stored in `out_order`."""
        rank, positions = len(g.kernel), math.prod(g.kernel)
        space = range(2, 2 + rank)
        if batch_inner:
            # rhs (group, outputs, *kernel, features) -> (group, kernel and outputs, features)
            w = lax.reshape(lax.transpose(w, (0, *space, 1, 2 + rank)), (g.groups, positions * g.outputs, g.inputs))
            if g.depthwise:
                y = lax.expand_dims(w, range(3, 3 + rank)).astype(accumulate) * x.astype(accumulate)
            else:
                y = _product(w, x, ((2,), (1,)), accumulate, precision)
            parts = lax.reshape(y, (g.groups, positions, g.outputs, *x.shape[2:]))
            axis = 1
        else:
            # rhs (group, features, *kernel, outputs) -> (group, features, kernel and outputs)
            w = lax.reshape(w, (g.groups, g.inputs, positions * g.outputs))
            if g.depthwise:
                y = lax.expand_dims(w, range(2, 2 + rank)).astype(accumulate) * x.astype(accumulate)
            else:
                y = _product(x, w, ((x.ndim - 1,), (1,)), accumulate, precision)
            parts = lax.reshape(y, (*y.shape[:-1], positions, g.outputs))
            axis = y.ndim - 1
        terms = [lax.index_in_dim(parts, k, axis, keepdims=False) for k in range(positions)]
        if all(d == 1 for d in g.lhs_dilation):
            return _merge_groups(_add_in_place(terms, g), batch_inner)
        for d in reversed(range(rank)):
            terms = [_shifted_sum(terms[i : i + g.kernel[d]], d, g) for i in range(0, len(terms), g.kernel[d])]
        return _merge_groups(terms[0], batch_inner)


def _add_in_place(terms: list[jax.Array], g: Geometry) -> jax.Array:
    """Returns the sum of all terms, each added to the part of one buffer where its products belong.

    XLA updates the buffer in place and, unlike a sum of padded terms, does not compute it again in what follows.
    """
    first = terms[0]
    total = lax.full((*first.shape[:2], *g.windows, first.shape[-1]), 0, first.dtype)
    for term, offset in zip(terms, itertools.product(*(range(k) for k in g.kernel)), strict=True):
        starts, lows, highs = [0, 0], [0, 0], list(first.shape[:2])
        for d, o in enumerate(offset):
            start = g.padding[d][0] - o * g.rhs_dilation[d]
            low, high = max(0, -start), min(g.space[d], g.windows[d] - start)
            if high <= low:
                break
            starts.append(start + low)
            lows.append(low)
            highs.append(high)
        else:
            part = lax.slice(term, (*lows, 0), (*highs, first.shape[-1]))
            starts.append(0)
            old = lax.slice(total, starts, [s + n for s, n in zip(starts, part.shape, strict=True)])
            total = _overwrite(total, old + part, tuple(starts))
    return total


def _overwrite(buffer: jax.Array, part: jax.Array, starts: tuple[int, ...]) -> jax.Array:
    """Returns the buffer with a part of it replaced; under `vmap` too, where JAX would make a slow scatter of it."""

    @jax.custom_batching.custom_vmap
    def overwrite(buffer: jax.Array, part: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice(buffer, part, [jax.numpy.int32(start) for start in starts])

    @overwrite.def_vmap
    def _(size: int, batched: list[bool], buffer: jax.Array, part: jax.Array) -> tuple[jax.Array, bool]:
        whole = [
            x if is_batched else lax.broadcast(x, (size,))
            for x, is_batched in zip((buffer, part), batched, strict=True)
        ]
        return _overwrite(whole[0], whole[1], (0, *starts)), True

    return overwrite(buffer, part)


def _shifted_sum(terms: list[jax.Array], d: int, g: Geometry) -> jax.Array:
    """Returns the sum over one dimension of the kernel, each term moved to where its products belong."""
    total = None
    for offset, term in enumerate(terms):
        low = g.padding[d][0] - offset * g.rhs_dilation[d]
        high = g.windows[d] - low - ((g.space[d] - 1) * g.lhs_dilation[d] + 1)
        config = [(0, 0, 0)] * len(g.space)
        config[d] = (low, high, g.lhs_dilation[d] - 1)
        moved = _pad_space(term, config)
        total = moved if total is None else total + moved
    assert total is not None
    return total


class FilterGradient(Gather):
    """Patches of the layer's input times the gradient of its output: few windows, a kernel as large as the output."""

    def lhs_leading(self, g: Geometry) -> int:
        """The layer's features are what the convolution calls batch."""
        return 0

    def batch(self, g: Geometry) -> int:
        """The layer's batch size, over which the convolution sums."""
        return g.inputs

    def out_order(self, batch_inner: bool, rank: int) -> tuple[int, ...]:
        """Order of the result."""
        return (*range(2, 2 + rank), 0, 1)

    def cost(self, g: Geometry) -> float:
        """Time in multiply-adds."""
        copy = 0 if math.prod(g.windows) == 1 else _copy(g.kernel[-1] * g.inputs, g.padded)
        return self.patch_elements(g) * (g.outputs + copy)

    def compute(
        self,
        x: jax.Array,
        w: jax.Array,
        g: Geometry,
        batch_inner: bool,
        accumulate: DTypeLike,
        precision: lax.PrecisionLike,
    ) -> jax.Array:
        """Returns the convolution, stored in `out_order`."""
        x = _whole_input(x, g)
        channel = 1 if batch_inner else x.ndim - 1
        rank = len(g.kernel)
        p = _patches(x, channel, g.windows, g.strides, g.kernel, g.rhs_dilation)
        if batch_inner:
            contract = tuple(range(2, 3 + rank))
        else:
            contract = tuple(range(1, 2 + rank))
        # XLA transposes the right operand of such a product first, so that should be the smaller one.
        if p.size < w.size:
            y = lax.transpose(_product(w, p, (contract, contract), accumulate, precision), (0, 2, 1))
        else:
            y = _product(p, w, (contract, contract), accumulate, precision)
        y = lax.reshape(y, (g.groups, *g.windows, g.batch, g.outputs))
        y = lax.transpose(y, (*range(1, 2 + rank), 0, 2 + rank))
        return lax.reshape(y, (*g.windows, g.batch, g.groups * g.outputs))


FORMS: tuple[Gather, ...] = (Gather(), Scatter(), FilterGradient())
