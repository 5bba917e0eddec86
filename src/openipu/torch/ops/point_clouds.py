"""Operations on point clouds: farthest-point sampling and nearest neighbours."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from openipu.torch.aten.registry import Context, lowering
from openipu.torch.exceptions import Error
from openipu.torch.tracing import isRunningOnIpu


@torch.library.custom_op("openipu::fps", mutates_args=())
def _fps(src: torch.Tensor, ptr: Sequence[int], ratio: float, random_start: bool) -> torch.Tensor:
    """Indices of sampled points."""
    raise NotImplementedError("poptorch.fps only runs on the IPU")


@_fps.register_fake
def _fps_fake(src: torch.Tensor, ptr: Sequence[int], ratio: float, random_start: bool) -> torch.Tensor:
    return torch.empty(sum(_counts(ptr, ratio)), dtype=torch.int64, device="cpu")


def _counts(ptr: Sequence[int], ratio: float) -> list[int]:
    return [math.ceil(ratio * (end - begin)) for begin, end in itertools.pairwise(ptr)]


@lowering("openipu::fps", random=lambda node: bool(node.args[3]))
def _fps_lowering(context: Context, src: jax.Array, ptr: Sequence[int], ratio: float, random_start: bool) -> jax.Array:
    found = []
    for part, (begin, count) in enumerate(zip(ptr, _counts(ptr, ratio), strict=False)):
        points = src[begin : ptr[part + 1]].reshape(ptr[part + 1] - begin, -1)
        first: Any = 0
        if random_start:
            first = jax.random.randint(jax.random.fold_in(context.drawing_key, part), (), 0, len(points))
        found.append(begin + _farthest(points, count, first))
    return jnp.concatenate(found)


def _farthest(points: jax.Array, count: int, first: Any) -> jax.Array:
    """Points taken one by one, each the farthest from all taken before."""

    def take(state: tuple, _: Any) -> tuple:
        distance, current = state
        distance = jnp.minimum(distance, jnp.sum((points - points[current]) ** 2, axis=1))
        return (distance, jnp.argmax(distance).astype(jnp.int32)), current

    start = (jnp.full(len(points), jnp.inf, points.dtype), jnp.asarray(first, jnp.int32))
    return lax.scan(take, start, None, length=count)[1]


def fps(src: torch.Tensor, ptr: list[int], ratio: float = 0.5, random_start: bool = False) -> torch.Tensor:
    """Samples points of every segment so that each is as far as possible from those before.

    Args:
      src: points, one a row.
      ptr: where segments begin, and where the last one ends.
      ratio: which share of each segment is sampled.
      random_start: begin at a random point of each segment rather than at its first.

    Returns:
      The indices of the sampled points.
    """
    if not isinstance(src, torch.Tensor):
        raise Error(f"fps: src must be a torch.Tensor. Received: {type(src)}")
    if not isinstance(ptr, list | tuple) or len(ptr) < 2 or not all(isinstance(p, int) for p in ptr):
        raise Error(f"fps: ptr must be a list of at least two ints. Received: {ptr!r}")
    if not isRunningOnIpu():
        raise NotImplementedError("poptorch.fps only runs on the IPU")
    return _fps(src, list(ptr), float(ratio), bool(random_start))


Batch = list[int] | torch.Tensor | None


def nearest(x: torch.Tensor, y: torch.Tensor, batch_x: Batch = None, batch_y: Batch = None) -> torch.Tensor:
    """For every row of `x` the index of the nearest row of `y`, within the same batch.

    Args:
      x, y: points, one a row.
      batch_x, batch_y: the batch of every row, sorted; both or neither.
    """
    for name, value in (("x", x), ("y", y)):
        if not isinstance(value, torch.Tensor):
            raise Error(f"nearest: {name} must be a torch.Tensor. Received: {type(value)}")
    if (batch_x is None) != (batch_y is None):
        raise Error("nearest: batch_x and batch_y must both be given, or neither.")
    left, right = x.reshape(x.shape[0], -1), y.reshape(y.shape[0], -1)
    distance = ((left[:, None] - right[None]) ** 2).sum(-1)
    if batch_x is not None and batch_y is not None:
        same = torch.as_tensor(batch_x)[:, None] == torch.as_tensor(batch_y)[None]
        distance = torch.where(same, distance, distance.new_full(distance.shape, float("inf")))
    return distance.argmin(1)
