"""Pooling of the native library: the gradient of maxima over windows."""

from collections.abc import Sequence
from typing import Any

import attrs
import jax
from jax.core import ShapedArray

from openipu.compiler.native import targets


@attrs.frozen
class Side:
    """One pooled dimension: its size, how many windows, how long they are, how far apart, the padding before it."""

    size: int
    windows: int
    extent: int
    stride: int
    low: int


@attrs.frozen
class Pooling:
    """Windows over two dimensions that lie side by side in memory.

    Attributes:
      outer, inner: how many elements the dimensions before and after have.
      rows, columns: the two dimensions.
    """

    outer: int
    inner: int
    rows: Side
    columns: Side


def maximum_gradient(gradient: jax.Array, x: jax.Array, pooling: Pooling) -> jax.Array:
    """The gradient of an array by the maxima of its windows: it goes to the first of a window's largest elements."""
    return MAXIMUM_GRADIENT.bind(gradient, x, pooling=pooling)[0]


def _results(gradient: Any, x: Any, *, pooling: Pooling) -> list[ShapedArray]:
    return [ShapedArray(x.shape, x.dtype)]


def _attributes(*, pooling: Pooling) -> targets.Attributes:
    sides = (*attrs.astuple(pooling.rows), *attrs.astuple(pooling.columns))
    return {"shape": (pooling.outer, pooling.inner, *sides)}


def _lanes(arrays: Sequence[jax.Array], axes: Sequence[int | None], *, pooling: Pooling) -> tuple:
    # What windows have nothing to do with is the outer dimension, and so are lanes.
    arrays, size = targets.lanes_first(arrays, axes)
    return MAXIMUM_GRADIENT.bind(*arrays, pooling=attrs.evolve(pooling, outer=pooling.outer * size)), [0]


MAXIMUM_GRADIENT = targets.define("openipu_pooling_maximum_gradient", _results, _attributes, _lanes)
