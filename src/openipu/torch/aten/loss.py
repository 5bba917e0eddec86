"""Losses whose gradient or cost would suffer from torch's own decompositions."""

import jax
import jax.numpy as jnp
import torch

from openipu.torch.aten.dtypes import wide
from openipu.torch.aten.registry import op

aten = torch.ops.aten

# torch's codes for what happens to the losses of the single elements.
_NONE, _MEAN = 0, 1


def reduced(losses: jax.Array, reduction: int) -> jax.Array:
    """Losses of single elements put together."""
    if reduction == _NONE:
        return losses
    return jnp.mean(losses) if reduction == _MEAN else jnp.sum(losses)


@op(aten.nll_loss_forward, aten.nll_loss2d_forward)
def _nll_loss(
    x: jax.Array, target: jax.Array, weight: jax.Array | None, reduction: int, ignore_index: int
) -> tuple[jax.Array, jax.Array]:
    axis = 1 if x.ndim > 1 else 0
    kept = target != ignore_index
    label = jnp.where(kept, target, 0)
    picked = jnp.take_along_axis(wide(x), jnp.expand_dims(label, axis), axis=axis).squeeze(axis)
    scale = kept.astype(picked.dtype) if weight is None else jnp.where(kept, wide(weight)[label], 0)
    losses = jnp.where(kept, -picked * scale, jnp.zeros_like(picked))
    total = jnp.sum(scale)
    if reduction == _NONE:
        return losses, jnp.zeros((), x.dtype)
    return (jnp.sum(losses) / total if reduction == _MEAN else jnp.sum(losses)), total


@jax.custom_jvp
def _cross_entropy_terms(x: jax.Array, target: jax.Array) -> jax.Array:
    # torch bounds the logarithms, so that the loss of a certain mistake is finite.
    return (target - 1) * jnp.maximum(jnp.log1p(-x), -100) - target * jnp.maximum(jnp.log(x), -100)


@_cross_entropy_terms.defjvp
def _cross_entropy_terms_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x, target), (dx, dtarget) = primals, tangents
    slope = (x - target) / jnp.maximum((1 - x) * x, 1e-12)
    toward = jnp.maximum(jnp.log1p(-x), -100) - jnp.maximum(jnp.log(x), -100)
    return _cross_entropy_terms(x, target), slope * dx + toward * dtarget


@op(aten.binary_cross_entropy)
def _binary_cross_entropy(
    x: jax.Array, target: jax.Array, weight: jax.Array | None = None, reduction: int = _MEAN
) -> jax.Array:
    losses = _cross_entropy_terms(wide(x), wide(target))
    return reduced(losses if weight is None else losses * weight, reduction)


@op(aten.multilabel_margin_loss_forward)
def _multilabel_margin_loss(x: jax.Array, target: jax.Array, reduction: int) -> tuple[jax.Array, jax.Array]:
    # torch's own decomposition counts class 0 for the places behind the end mark, where the kernel counts nothing.
    data, labels = jnp.atleast_2d(wide(x)), jnp.atleast_2d(target)
    valid = jnp.cumsum(labels < 0, axis=1) == 0
    classes = jnp.arange(data.shape[1])
    is_target = jnp.any((labels[:, :, None] == classes) & valid[:, :, None], axis=1)
    chosen = jnp.take_along_axis(data, jnp.where(valid, labels, 0), axis=1)
    margins = 1 - chosen[:, :, None] + data[:, None, :]
    counted = valid[:, :, None] & ~is_target[:, None, :] & (margins > 0)
    losses = jnp.sum(jnp.where(counted, margins, 0), axis=(1, 2)) / data.shape[1]
    losses = reduced(losses if x.ndim > 1 or reduction else losses[0], reduction)
    return losses, is_target.reshape(target.shape)
