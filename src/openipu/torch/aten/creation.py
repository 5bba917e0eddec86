"""Tensors made from nothing or in the likeness of another."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from openipu.torch.aten.dtypes import Scalar
from openipu.torch.aten.registry import Context, op

aten = torch.ops.aten


@op(aten.full, aten.full_like, aten.new_full, context=True)
def _full(context: Context, first: Any, second: Any, *rest: Any, **_: Any) -> jax.Array:
    # (shape, value), (tensor, value) or (tensor, shape, value).
    return jnp.full(context.shape, rest[0] if rest else second, context.dtype)


@op(
    aten.zeros,
    aten.zeros_like,
    aten.new_zeros,
    # What is not set yet may hold anything; zeros make runs repeatable.
    aten.empty,
    aten.empty_like,
    aten.empty_permuted,
    aten.empty_strided,
    aten.new_empty,
    aten.new_empty_strided,
    context=True,
)
def _zeros(context: Context, *_: Any, **__: Any) -> jax.Array:
    return jnp.zeros(context.shape, context.dtype)


@op(aten.ones, aten.ones_like, aten.new_ones, context=True)
def _ones(context: Context, *_: Any, **__: Any) -> jax.Array:
    return jnp.ones(context.shape, context.dtype)


@op(aten.scalar_tensor, context=True)
def _scalar_tensor(context: Context, value: Scalar, **_: Any) -> jax.Array:
    return jnp.asarray(value, context.dtype)


@op(aten.arange.default, context=True)
def _arange_end(context: Context, end: Scalar, **_: Any) -> jax.Array:
    return _arange(context, 0, end)


@op(aten.arange.start, aten.arange.start_step, context=True)
def _arange(context: Context, start: Scalar, end: Scalar, step: Scalar = 1, **_: Any) -> jax.Array:
    (size,) = context.shape
    return jnp.asarray(np.asarray(start + np.arange(size) * step), context.dtype)


@op(aten.linspace, context=True)
def _linspace(context: Context, start: Any, end: Any, steps: int, **_: Any) -> jax.Array:
    if isinstance(start, bool | int | float) and isinstance(end, bool | int | float):
        return jnp.asarray(np.linspace(start, end, steps), context.dtype)
    return jnp.linspace(start, end, steps, dtype=context.dtype)


@op(aten.eye.default, context=True)
def _eye(context: Context, n: int, **_: Any) -> jax.Array:
    return jnp.eye(n, n, dtype=context.dtype)


@op(aten.eye.m, context=True)
def _eye_m(context: Context, n: int, m: int, **_: Any) -> jax.Array:
    return jnp.eye(n, m, dtype=context.dtype)


@op(aten.tril_indices, aten.triu_indices, context=True)
def _triangle_indices(context: Context, rows: int, columns: int, offset: int = 0, **_: Any) -> jax.Array:
    upper = "triu" in str(context.node.target)
    diagonal = np.arange(columns)[None] - np.arange(rows)[:, None]
    mask = diagonal >= offset if upper else diagonal <= offset
    return jnp.asarray(np.stack(np.nonzero(mask)), context.dtype)
