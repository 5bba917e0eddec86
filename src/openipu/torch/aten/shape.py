"""Views, joins, padding and other changes of shape."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from openipu.torch.aten.dtypes import Scalar, promote
from openipu.torch.aten.registry import Context, op

aten = torch.ops.aten


@op(aten.view.default, aten._unsafe_view, aten._reshape_alias, aten.view_copy.default, context=True)
def _view(context: Context, x: jax.Array, *_: Any) -> jax.Array:
    return x.reshape(context.shape)


@op(aten.expand, aten.broadcast_to, context=True)
def _expand(context: Context, x: jax.Array, *_: Any, **__: Any) -> jax.Array:
    return jnp.broadcast_to(x, context.shape)


@op(aten.permute)
def _permute(x: jax.Array, dims: Sequence[int]) -> jax.Array:
    return jnp.transpose(x, [dim % x.ndim for dim in dims])


@op(aten.transpose.int)
def _transpose(x: jax.Array, a: int, b: int) -> jax.Array:
    return jnp.swapaxes(x, a, b) if x.ndim else x


@op(aten.t)
def _t(x: jax.Array) -> jax.Array:
    return x.T


@op(aten.squeeze, aten.unsqueeze, context=True)
def _squeeze(context: Context, x: jax.Array, *_: Any) -> jax.Array:
    return x.reshape(context.shape)


@op(aten.select.int)
def _select(x: jax.Array, dim: int, index: int) -> jax.Array:
    return lax.index_in_dim(x, index, dim, keepdims=False)


@op(aten.slice.Tensor)
def _slice(x: jax.Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> jax.Array:
    first, last, step = slice(start, end, step).indices(x.shape[dim])
    return lax.slice_in_dim(x, first, max(first, last), step, dim)


@op(aten.select_scatter)
def _select_scatter(x: jax.Array, source: jax.Array, dim: int, index: int) -> jax.Array:
    return _along(x, dim, index).set(source.astype(x.dtype))


@op(aten.slice_scatter)
def _slice_scatter(
    x: jax.Array, source: jax.Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> jax.Array:
    return _along(x, dim, slice(start, end, step)).set(source.astype(x.dtype))


def _along(x: jax.Array, dim: int, index: Any) -> Any:
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)]


@op(aten.diagonal)
def _diagonal(x: jax.Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> jax.Array:
    return jnp.diagonal(x, offset, dim1, dim2)


@op(aten.diagonal_scatter)
def _diagonal_scatter(x: jax.Array, source: jax.Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> jax.Array:
    size = source.shape[-1]
    rows = np.arange(size) + max(-offset, 0)
    columns = np.arange(size) + max(offset, 0)
    moved = jnp.moveaxis(x, (dim1, dim2), (-2, -1))
    return jnp.moveaxis(moved.at[..., rows, columns].set(source.astype(x.dtype)), (-2, -1), (dim1, dim2))


@op(aten.cat)
def _cat(tensors: Sequence[jax.Array], dim: int = 0) -> jax.Array:
    # torch lets empty vectors join anything.
    kept = [x for x in tensors if x.shape != (0,)] or list(tensors)
    return jnp.concatenate(promote(*kept), axis=dim)


@op(aten.stack)
def _stack(tensors: Sequence[jax.Array], dim: int = 0) -> jax.Array:
    return jnp.stack(promote(*tensors), axis=dim)


@op(aten.split_with_sizes)
def _split_with_sizes(x: jax.Array, sizes: Sequence[int], dim: int = 0) -> list[jax.Array]:
    ends = np.cumsum(sizes)
    return [lax.slice_in_dim(x, int(end - n), int(end), 1, dim) for end, n in zip(ends, sizes, strict=True)]


@op(aten.split.Tensor)
def _split(x: jax.Array, size: int, dim: int = 0) -> list[jax.Array]:
    length = x.shape[dim]
    if size == 0:
        return [x]
    sizes = [min(size, length - start) for start in range(0, max(length, 1), size)]
    return _split_with_sizes(x, sizes, dim)


@op(aten.unbind)
def _unbind(x: jax.Array, dim: int = 0) -> list[jax.Array]:
    return [lax.index_in_dim(x, i, dim, keepdims=False) for i in range(x.shape[dim])]


@op(aten.repeat)
def _repeat(x: jax.Array, repeats: Sequence[int]) -> jax.Array:
    return jnp.tile(x, repeats)


@op(aten.roll)
def _roll(x: jax.Array, shifts: Sequence[int], dims: Sequence[int] = ()) -> jax.Array:
    if not dims:
        return jnp.roll(x.reshape(-1), shifts[0]).reshape(x.shape)
    return jnp.roll(x, tuple(shifts), tuple(dims))


@op(aten.flip)
def _flip(x: jax.Array, dims: Sequence[int]) -> jax.Array:
    return jnp.flip(x, tuple(dims)) if x.ndim else x


@op(aten.tril, aten.triu, context=True)
def _triangle(context: Context, x: jax.Array, diagonal: int = 0) -> jax.Array:
    rows, columns = x.shape[-2:]
    offsets = np.arange(columns)[None] - np.arange(rows)[:, None]
    kept = offsets >= diagonal if "triu" in str(context.node.target) else offsets <= diagonal
    return jnp.where(kept, x, jnp.zeros_like(x))


@op(aten.constant_pad_nd)
def constant_pad(x: jax.Array, pad: Sequence[int], value: Scalar = 0) -> jax.Array:
    """Padding, or cropping where it is negative; the last dimension's pair comes first."""
    config = [(0, 0, 0)] * x.ndim
    for number, (low, high) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        config[x.ndim - 1 - number] = (low, high, 0)
    return lax.pad(x, jnp.asarray(value, x.dtype), config)


@op(aten.reflection_pad1d, aten.reflection_pad2d, aten.reflection_pad3d)
def _reflection_pad(x: jax.Array, pad: Sequence[int]) -> jax.Array:
    return _index_pad(x, pad, lambda i, n: n - 1 - np.abs(n - 1 - np.abs(i)))


@op(aten.replication_pad1d, aten.replication_pad2d, aten.replication_pad3d)
def _replication_pad(x: jax.Array, pad: Sequence[int]) -> jax.Array:
    return _index_pad(x, pad, lambda i, n: np.clip(i, 0, n - 1))


def _index_pad(x: jax.Array, pad: Sequence[int], source: Any) -> jax.Array:
    for number, (low, high) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        dim = x.ndim - 1 - number
        size = x.shape[dim]
        x = jnp.take(x, source(np.arange(-low, size + high), size), axis=dim)
    return x


@op(aten.as_strided, aten.as_strided_copy)
def _as_strided(x: jax.Array, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> jax.Array:
    # Captured tensors are contiguous, so strides are positions in the flat array.
    index = np.asarray(offset or 0)
    for dim, (n, step) in enumerate(zip(size, stride, strict=True)):
        index = index + (np.arange(n) * step).reshape([-1 if i == dim else 1 for i in range(len(size))])
    return x.reshape(-1)[np.broadcast_to(index, size)]


@op(aten.unfold)
def _unfold(x: jax.Array, dim: int, size: int, step: int) -> jax.Array:
    if not x.ndim:
        return x.reshape(1)
    starts = np.arange(0, x.shape[dim] - size + 1, step)
    windows = jnp.take(x, starts[:, None] + np.arange(size)[None], axis=dim)
    return jnp.moveaxis(windows, dim % x.ndim + 1, -1)


@op(aten.pixel_shuffle)
def _pixel_shuffle(x: jax.Array, factor: int) -> jax.Array:
    *batch, channels, height, width = x.shape
    depth = channels // factor**2
    x = x.reshape(-1, depth, factor, factor, height, width).transpose(0, 1, 4, 2, 5, 3)
    return x.reshape(*batch, depth, height * factor, width * factor)


@op(aten.pixel_unshuffle)
def _pixel_unshuffle(x: jax.Array, factor: int) -> jax.Array:
    *batch, depth, height, width = x.shape
    height, width = height // factor, width // factor
    x = x.reshape(-1, depth, height, factor, width, factor).transpose(0, 1, 3, 5, 2, 4)
    return x.reshape(*batch, depth * factor**2, height, width)
