"""Convolutions of few channels and the gradient of their weights, on arrays with the batch innermost."""

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
    """What is computed; the gradient of a layer's input is a convolution too."""

    CONVOLUTION = "openipu_direct_convolution"
    WEIGHT_GRADIENT = "openipu_direct_weight_gradient"


@attrs.frozen
class Side:
    """One dimension of space.

    Attributes:
      size, windows, kernel: of input, output and weights.
      stride, dilation: of the window.
      low: the padding before the first element.
      spread: how far apart the input's elements are; between them are zeros.
    """

    size: int = 1
    windows: int = 1
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    low: int = 0
    spread: int = 1


@attrs.frozen
class Layer:
    """A convolution whose input and output have the batch innermost.

    Attributes:
      batch, inputs, outputs: counts.
      rows, columns: of space; a line has one row.
      source, target, weights: shapes of the arrays as they are stored.
      source_steps, target_steps: how far apart channels, rows and columns are.
      weight_steps: where the first weight is, and how far apart outputs, inputs, rows and columns are: less than
        nothing where they are used in reverse.
    """

    batch: int
    inputs: int
    outputs: int
    rows: Side
    columns: Side
    source: Sizes
    target: Sizes
    weights: Sizes
    source_steps: Sizes
    target_steps: Sizes
    weight_steps: Sizes

    @property
    def shape(self) -> Sizes:
        """All of it as the numbers that the library reads, except for lanes."""
        sides = (*attrs.astuple(self.rows), *attrs.astuple(self.columns))
        steps = (*self.source_steps, *self.target_steps, *self.weight_steps)
        return (self.batch, self.inputs, self.outputs, *sides, *steps)

    @property
    def multiplications(self) -> float:
        """How many multiply-adds a number of the batch takes."""
        kernel = math.prod(side.kernel / side.spread for side in (self.rows, self.columns))
        return self.inputs * self.outputs * self.rows.windows * self.columns.windows * kernel

    def result(self, kind: Kind) -> Sizes:
        """The shape of what is computed."""
        return self.target if kind is Kind.CONVOLUTION else self.weights


def compute(kind: Kind, left: jax.Array, right: jax.Array, layer: Layer) -> jax.Array:
    """A convolution of input and weights, or the gradient of weights from the input and the output's gradient."""
    return PRIMITIVES[kind].bind(left, right, kind=kind, layer=layer, lanes=0, sets=0)[0]


# An array of activations has as many lanes as the parameter says, one of weights as many sets; 0 is no such dimension.
# Lanes share the only set of weights or have it in equal parts, and its gradient is their sum.
def _results(left: Any, right: Any, *, kind: Kind, layer: Layer, lanes: int, sets: int) -> list[ShapedArray]:
    lead = lanes if kind is Kind.CONVOLUTION else sets
    return [ShapedArray(((lead,) if lead else ()) + layer.result(kind), left.dtype)]


def _attributes(*, kind: Kind, layer: Layer, lanes: int, sets: int) -> targets.Attributes:
    return {"shape": (max(lanes, 1), max(sets, 1), *layer.shape)}


def _lanes(
    arrays: Sequence[jax.Array], axes: Sequence[int | None], *, kind: Kind, layer: Layer, lanes: int, sets: int
) -> tuple:
    leads = [lanes, sets] if kind is Kind.CONVOLUTION else [lanes, lanes]
    if kind is Kind.CONVOLUTION and axes[1] is None and not sets:
        (left,), size = targets.lanes_first(arrays[:1], axes[:1])
        given, more = [left, arrays[1]], [size, 0]
    else:
        given, size = targets.lanes_first(arrays, axes)
        more = [size, size]
    merged = [
        lax.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:])) if lead and count else x
        for x, lead, count in zip(given, leads, more, strict=True)
    ]
    lanes_now, sets_now = size * max(lanes, 1), more[1] * max(sets, 1)
    (made,) = PRIMITIVES[kind].bind(*merged, kind=kind, layer=layer, lanes=lanes_now, sets=sets_now)
    lead = lanes if kind is Kind.CONVOLUTION else sets
    return [lax.reshape(made, (size, lead, *made.shape[1:])) if lead else made], [0]


def summed_over_lanes(left: jax.Array, right: jax.Array, layer: Layer, lanes: int) -> jax.Array:
    """The gradient of weights that all lanes share."""
    kind = Kind.WEIGHT_GRADIENT
    return PRIMITIVES[kind].bind(left, right, kind=kind, layer=layer, lanes=lanes, sets=0)[0]


PRIMITIVES: dict[Kind, Primitive] = {kind: targets.define(kind.value, _results, _attributes, _lanes) for kind in Kind}
