"""Inverses, determinants and solutions of linear systems."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch

from openipu.torch.aten.registry import op

aten = torch.ops.aten


@op(aten.linalg_inv, aten.inverse)
def _inverse(x: jax.Array) -> jax.Array:
    return jnp.linalg.inv(x)


@op(aten.linalg_det, aten.det)
def _det(x: jax.Array) -> jax.Array:
    return jnp.linalg.det(x)


@op(aten.linalg_slogdet)
def _slogdet(x: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(jnp.linalg.slogdet(x))


@op(aten.linalg_cholesky)
def _cholesky(x: jax.Array, *, upper: bool = False) -> jax.Array:
    factor = jnp.linalg.cholesky(x)
    return jnp.swapaxes(factor, -1, -2) if upper else factor


def _vectors_too(solve: Callable) -> Callable:
    def run(a: jax.Array, b: jax.Array, **settings: Any) -> jax.Array:
        # torch takes a batch of vectors where their shape is that of the batch of matrices.
        if b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1]):
            return solve(a, b[..., None], **settings)[..., 0]
        return solve(a, b, **settings)

    return run


def _solve(a: jax.Array, b: jax.Array, *, left: bool = True) -> jax.Array:
    if left:
        return jnp.linalg.solve(a, b)
    turned = jnp.linalg.solve(jnp.swapaxes(a, -1, -2), jnp.swapaxes(b, -1, -2))
    return jnp.swapaxes(turned, -1, -2)


op(aten.linalg_solve)(_vectors_too(_solve))


@op(aten.linalg_solve_triangular)
def _solve_triangular(
    a: jax.Array, b: jax.Array, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> jax.Array:
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    return jax.lax.linalg.triangular_solve(a, b, left_side=left, lower=not upper, unit_diagonal=unitriangular)
