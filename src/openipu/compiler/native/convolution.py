"""Convolutions of the native library: a layer's forward pass and its two gradients."""

import ctypes
import enum
import functools
import math
from collections.abc import Sequence
from typing import Any

import attrs
import jax
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive

from openipu.compiler.native import targets
from openipu.compiler.native.loading import Library

# How oneDNN numbers the types that it computes in.
TYPES = {"float16": 1, "bfloat16": 2, "float32": 3}

Sizes = tuple[int, ...]


class Kind(enum.IntEnum):
    """Which of a layer's arrays is computed from the other two, by oneDNN or by Winograd's algorithm.

    That is in tiles of 2x2 windows or, wide, of 4x4.
    """

    FORWARD = 0
    DATA_GRADIENT = 1
    WEIGHT_GRADIENT = 2
    WINOGRAD_WEIGHT_GRADIENT = 3
    WIDE_WINOGRAD_WEIGHT_GRADIENT = 4

    @property
    def of_weights(self) -> bool:
        """Whether it has weights as its result."""
        return self not in (Kind.FORWARD, Kind.DATA_GRADIENT)


@attrs.frozen
class Layer:
    """A layer's convolution; its input and output have the channels innermost.

    Attributes:
      groups: of channels.
      batch, inputs, outputs: counts of the whole layer.
      space, windows, kernel: sizes of input, output and weights.
      strides, dilations, low: of the window; `low` is the padding before the first element.
      weights: shape of the array of weights.
      weight_strides: how far apart its elements are: groups, outputs of a group, inputs of a group, *kernel.
    """

    groups: int
    batch: int
    inputs: int
    outputs: int
    space: Sizes
    windows: Sizes
    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    low: Sizes
    weights: Sizes
    weight_strides: Sizes

    @property
    def shape(self) -> Sizes:
        """All of it as the numbers that the library reads."""
        window = (*self.space, *self.windows, *self.kernel, *self.strides, *self.dilations, *self.low)
        counts = (len(self.space), self.groups, self.batch, self.inputs, self.outputs)
        return (*counts, *window, *self.weight_strides)

    @property
    def multiplications(self) -> int:
        """How many multiply-adds each of the three arrays takes."""
        each = self.inputs // self.groups * math.prod(self.kernel)
        return self.batch * self.outputs * math.prod(self.windows) * each

    def tiles(self, size: int) -> int:
        """How many tiles of so many windows in every dimension it is made of."""
        return self.batch * math.prod(math.ceil(windows / size) for windows in self.windows)

    @property
    def ordinary(self) -> bool:
        """Whether every window has a part of the input in it: what networks have, and what oneDNN's kernels expect."""
        columns = (self.space, self.windows, self.kernel, self.strides, self.dilations, self.low)
        for space, windows, kernel, stride, dilation, low in zip(*columns, strict=True):
            span = (kernel - 1) * dilation + 1
            high = (windows - 1) * stride + span - space - low
            if not (0 <= low < span and -stride < high < span):
                return False
        return True

    def result(self, kind: Kind) -> Sizes:
        """The shape of what is computed."""
        if kind is Kind.FORWARD:
            return (self.batch, *self.windows, self.outputs)
        return (self.batch, *self.space, self.inputs) if kind is Kind.DATA_GRADIENT else self.weights


@functools.lru_cache(maxsize=4096)
def implementation(library: Library, kind: Kind, layer: Layer, dtype: str) -> str:
    """What oneDNN would run; empty if it has nothing."""
    ask = library.handle.openipu_convolution_implementation
    ask.restype, ask.argtypes = ctypes.c_char_p, [ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    numbers = (ctypes.c_int64 * len(layer.shape))(*layer.shape)
    return ask(kind, numbers, len(layer.shape), TYPES[dtype]).decode()


def convolution(kind: Kind, left: jax.Array, right: jax.Array, layer: Layer) -> jax.Array:
    """One of a layer's arrays.

    Args:
      kind: which.
      left, right: input and weights forwards; gradient of the output and weights for that of the input; input and
        gradient of the output for that of the weights.
      layer: the convolution.
    """
    return PRIMITIVES[kind].bind(left, right, kind=kind, layer=layer, lanes=0)[0]


def _results(left: Any, right: Any, *, kind: Kind, layer: Layer, lanes: int) -> list[ShapedArray]:
    return [ShapedArray(((lanes,) if lanes else ()) + layer.result(kind), left.dtype)]


def _attributes(*, kind: Kind, layer: Layer, lanes: int) -> targets.Attributes:
    return {"shape": layer.shape, "lanes": max(lanes, 1)}


def _lanes(arrays: Sequence[jax.Array], axes: Sequence[int | None], *, kind: Kind, layer: Layer, lanes: int) -> tuple:
    weights_shared = not kind.of_weights and axes[1] is None
    if weights_shared and not lanes:
        # Lanes with the same weights are a larger batch.
        (left,), size = targets.lanes_first(arrays[:1], axes[:1])
        left = lax.reshape(left, (size * left.shape[1], *left.shape[2:]))
        made = convolution(kind, left, arrays[1], attrs.evolve(layer, batch=layer.batch * size))
        return [lax.reshape(made, (size, *layer.result(kind)))], [0]
    (left, right), size = targets.lanes_first(arrays, axes)
    if lanes:
        left, right = (lax.reshape(x, (size * lanes, *x.shape[2:])) for x in (left, right))
    (made,) = PRIMITIVES[kind].bind(left, right, kind=kind, layer=layer, lanes=size * max(lanes, 1))
    return [lax.reshape(made, (size, lanes, *made.shape[1:])) if lanes else made], [0]


def summed_over_lanes(kind: Kind, left: jax.Array, right: jax.Array, layer: Layer, lanes: int) -> jax.Array:
    """The gradient of weights that several lanes share: that of one larger batch."""
    left, right = (lax.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:])) for x in (left, right))
    return convolution(kind, left, right, attrs.evolve(layer, batch=layer.batch * lanes))


PRIMITIVES: dict[Kind, Primitive] = {
    kind: targets.define(f"openipu_convolution_{kind.name.lower()}", _results, _attributes, _lanes) for kind in Kind
}
