"""Convolutions with what follows them in a network, on arrays with the channels innermost: bias, rectifier, maxima."""

import enum
import math
from collections.abc import Sequence
from typing import Any

import attrs
import jax
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive

from openipu.compiler.native import targets

Sizes = tuple[int, ...]


class Kind(enum.Enum):
    """How it is computed; Winograd's algorithm in tiles of 2x2 results or, wide, of 4x4."""

    WINOGRAD = "openipu_winograd_convolution"
    WIDE_WINOGRAD = "openipu_wide_winograd_convolution"
    SHALLOW = "openipu_shallow_convolution"


@attrs.frozen
class Side:
    """One dimension of space.

    Attributes:
      size, windows, kernel: of input, output and weights.
      stride: of the window.
      low: the padding before the first element.
    """

    size: int
    windows: int
    kernel: int
    stride: int
    low: int


@attrs.frozen
class Layer:
    """A convolution and what follows it.

    Attributes:
      batch, inputs, outputs: counts.
      rows, columns: of space.
      weights: shape of the array of weights as it is stored.
      weight_steps: where the first weight is, and how far apart outputs, inputs, rows and columns are: less than
        nothing where they are used in reverse.
      rectify: whether results below zero are replaced by it.
      pool: whether the result are the maxima of windows of 2x2 that lie side by side.
    """

    batch: int
    inputs: int
    outputs: int
    rows: Side
    columns: Side
    weights: Sizes
    weight_steps: Sizes
    rectify: bool = False
    pool: bool = False

    @property
    def shape(self) -> Sizes:
        """All of it as the numbers that the library reads, except for lanes."""
        sides = (*attrs.astuple(self.rows), *attrs.astuple(self.columns))
        return (self.batch, self.inputs, self.outputs, *sides, *self.weight_steps, int(self.rectify), int(self.pool))

    @property
    def positions(self) -> int:
        """How many inputs of a channel a result is made of."""
        return self.rows.kernel * self.columns.kernel

    @property
    def results(self) -> int:
        """How many results of a channel the convolution has."""
        return self.batch * self.rows.windows * self.columns.windows

    def tiles(self, size: int) -> int:
        """How many tiles of so many results in both dimensions it is made of."""
        return self.batch * math.ceil(self.rows.windows / size) * math.ceil(self.columns.windows / size)

    @property
    def target(self) -> Sizes:
        """The shape of what is computed."""
        part = 2 if self.pool else 1
        return (self.batch, self.rows.windows // part, self.columns.windows // part, self.outputs)


def compute(kind: Kind, source: jax.Array, weights: jax.Array, bias: jax.Array, layer: Layer) -> jax.Array:
    """The layer's result."""
    return PRIMITIVES[kind].bind(source, weights, bias, kind=kind, layer=layer, lanes=0)[0]


def _results(source: Any, weights: Any, bias: Any, *, kind: Kind, layer: Layer, lanes: int) -> list[ShapedArray]:
    return [ShapedArray(((lanes,) if lanes else ()) + layer.target, source.dtype)]


def _attributes(*, kind: Kind, layer: Layer, lanes: int) -> targets.Attributes:
    return {"shape": (max(lanes, 1), *layer.shape)}


def _lanes(arrays: Sequence[jax.Array], axes: Sequence[int | None], *, kind: Kind, layer: Layer, lanes: int) -> tuple:
    if axes[1] is None and axes[2] is None and not lanes:
        # Lanes with the same weights are a larger batch.
        source, weights, bias = arrays
        (source,), size = targets.lanes_first([source], axes[:1])
        source = lax.reshape(source, (size * source.shape[1], *source.shape[2:]))
        made = compute(kind, source, weights, bias, attrs.evolve(layer, batch=layer.batch * size))
        return [lax.reshape(made, (size, *layer.target))], [0]
    given, size = targets.lanes_first(arrays, axes)
    if lanes:
        given = [lax.reshape(x, (size * lanes, *x.shape[2:])) for x in given]
    (made,) = PRIMITIVES[kind].bind(*given, kind=kind, layer=layer, lanes=size * max(lanes, 1))
    return [lax.reshape(made, (size, lanes, *made.shape[1:])) if lanes else made], [0]


PRIMITIVES: dict[Kind, Primitive] = {kind: targets.define(kind.value, _results, _attributes, _lanes) for kind in Kind}
