"""Distances between vectors, and products of three tensors."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from openipu.torch.aten.reduction import vector_norm
from openipu.torch.aten.registry import op

aten = torch.ops.aten


@op(aten._cdist_forward)
def _cdist(a: jax.Array, b: jax.Array, p: float, mode: int | None) -> jax.Array:
    return vector_norm(a[..., :, None, :] - b[..., None, :, :], p, (-1,))


@op(aten._pdist_forward)
def _pdist(x: jax.Array, p: float = 2) -> jax.Array:
    rows, columns = np.triu_indices(x.shape[0], 1)
    return vector_norm(x[rows] - x[columns], p, (-1,))


@op(aten._trilinear)
def _trilinear(
    a: jax.Array,
    b: jax.Array,
    c: jax.Array,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_c: Sequence[int],
    summed: Sequence[int],
    unroll_dim: int = 1,
) -> jax.Array:
    rank = a.ndim + len(expand_a)
    letters = "abcdefghijklmnopqrstuvwxyz"[:rank]

    def without(dims: Sequence[int]) -> str:
        return "".join(letter for dim, letter in enumerate(letters) if dim not in dims)

    operands = ",".join(without(dims) for dims in (expand_a, expand_b, expand_c))
    return jnp.einsum(f"{operands}->{without(summed)}", a, b, c)


@op(aten.linalg_cross)
def _cross(a: jax.Array, b: jax.Array, *, dim: int = -1) -> jax.Array:
    a, b = jnp.broadcast_arrays(a, b)
    one, two = (jnp.roll(x, -1, axis=dim) for x in (a, b))
    return jnp.roll(a * two - one * b, -1, axis=dim)


@op(aten.renorm)
def _renorm(x: jax.Array, p: Any, dim: int, limit: Any) -> jax.Array:
    others = tuple(axis for axis in range(x.ndim) if axis != dim % x.ndim)
    norm = vector_norm(x, p, others, True)
    return x * jnp.where(norm > limit, limit / (norm + 1e-7), jnp.ones_like(norm))
