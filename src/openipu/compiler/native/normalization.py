"""Batch normalisation of the native library: of a batch by its own statistics, and the gradient of that."""

from collections.abc import Sequence
from typing import Any

import attrs
import jax
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive

from openipu.compiler.native import targets


@attrs.frozen
class Batch:
    """How the channels lie in memory.

    Attributes:
      outer, inner: how many elements the dimensions before and after the channels have.
      channels: how many there are.
      lanes: how many batches there are, each with statistics of its own; 0 for one without an axis for them.
    """

    outer: int
    channels: int
    inner: int
    lanes: int = 0


def forward(x: jax.Array, scale: jax.Array, offset: jax.Array, epsilon: jax.Array, batch: Batch) -> list[jax.Array]:
    """The normalised batch, and the mean and variance of every channel; `epsilon` has a number for each of them."""
    return FORWARD.bind(x, scale, offset, epsilon, batch=batch)


def backward(
    gradient: jax.Array,
    x: jax.Array,
    scale: jax.Array,
    mean: jax.Array,
    variance: jax.Array,
    epsilon: jax.Array,
    batch: Batch,
) -> list[jax.Array]:
    """The gradients of the batch, the scale and the offset."""
    return BACKWARD.bind(gradient, x, scale, mean, variance, epsilon, batch=batch)


def _results(x: Any, *others: Any, batch: Batch) -> list[ShapedArray]:
    each = (*x.shape[: bool(batch.lanes)], batch.channels)
    return [ShapedArray(shape, x.dtype) for shape in (x.shape, each, each)]


def _attributes(*, batch: Batch) -> targets.Attributes:
    return {"shape": (max(batch.lanes, 1), batch.outer, batch.channels, batch.inner)}


def _lanes_of(target: str) -> Any:
    def lanes(arrays: Sequence[jax.Array], axes: Sequence[int | None], *, batch: Batch) -> tuple:
        arrays, size = targets.lanes_first(arrays, axes)
        before = batch.lanes
        if before:
            arrays = [lax.reshape(x, (size * before, *x.shape[2:])) for x in arrays]
        made = _PRIMITIVES[target].bind(*arrays, batch=attrs.evolve(batch, lanes=size * max(before, 1)))
        if before:
            made = [lax.reshape(x, (size, before, *x.shape[1:])) for x in made]
        return made, [0] * len(made)

    return lanes


_PRIMITIVES: dict[str, Primitive] = {
    target: targets.define(target, _results, _attributes, _lanes_of(target))
    for target in ("openipu_normalization_forward", "openipu_normalization_backward")
}
FORWARD, BACKWARD = _PRIMITIVES.values()
