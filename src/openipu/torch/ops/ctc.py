"""The loss of connectionist temporal classification as an operation that can be captured, and its lowering."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from openipu.torch.aten.registry import lowering

# The logarithm of zero, finite so that differences of it are zero and not NaN.
_ZERO = -1e30


@torch.library.custom_op("openipu::ctc_nll", mutates_args=())
def ctc_nll(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int,
) -> torch.Tensor:
    """The negative log-likelihood of each example's labels: float [batch]."""
    return torch.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, 0, False)


@ctc_nll.register_fake
def _ctc_nll_fake(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int) -> Any:
    return log_probs.new_empty((log_probs.shape[1],))


def ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor | Sequence[int],
    target_lengths: torch.Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:
    """`torch.nn.functional.ctc_loss` through the capturable operation."""
    batched = log_probs if log_probs.dim() == 3 else log_probs.unsqueeze(1)
    lengths = _lengths(input_lengths)
    label_lengths = _lengths(target_lengths)
    labels = targets if targets.dim() == 2 or log_probs.dim() == 3 else targets.unsqueeze(0)
    losses = ctc_nll(batched, labels, lengths, label_lengths, blank)
    if zero_infinity:
        losses = torch.where(losses == float("inf"), torch.zeros_like(losses, device=losses.device), losses)
    if reduction == "mean":
        return (losses / label_lengths.clamp_min(1).to(losses.dtype)).mean()
    if reduction == "sum":
        return losses.sum()
    return losses if log_probs.dim() == 3 else losses.squeeze(0)


def torch_ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor | Sequence[int],
    target_lengths: torch.Tensor | Sequence[int],
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> torch.Tensor:
    """`torch.ctc_loss`, whose reduction is a number, through the capturable operation."""
    name = ("none", "mean", "sum")[reduction]
    return ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, name, zero_infinity)


def _lengths(lengths: torch.Tensor | Sequence[int]) -> torch.Tensor:
    found = lengths if isinstance(lengths, torch.Tensor) else torch.tensor(list(lengths), device="cpu")
    return found.reshape(-1)


@lowering("openipu::ctc_nll")
def negative_log_likelihood(
    log_probs: jax.Array, targets: jax.Array, input_lengths: jax.Array, target_lengths: jax.Array, blank: int
) -> jax.Array:
    """The negative log-likelihood of each example's labels, on arrays: `ctc_nll` on the device."""
    steps, batch, _ = log_probs.shape
    labels = targets if targets.ndim == 2 else _padded(targets, target_lengths, batch)
    length = labels.shape[1]
    # Labels with a blank before, between and behind them: the states of the recursion.
    states = jnp.full((batch, 2 * length + 1), blank, labels.dtype).at[:, 1::2].set(labels)
    before = jnp.concatenate([jnp.full((batch, 2), blank, labels.dtype), states[:, :-2]], 1)[:, : 2 * length + 1]
    # A blank may be left out between two labels that differ.
    may_skip = (states != blank) & (states != before)
    data = jnp.maximum(log_probs.astype(jnp.float32), _ZERO)
    emitted = jnp.take_along_axis(data, jnp.broadcast_to(states[None], (steps, *states.shape)), axis=2)
    number = jnp.arange(2 * length + 1)
    first = jnp.where(number[None] < 2, emitted[0], _ZERO)

    def advance(alpha: jax.Array, item: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        emission, time = item
        one = _shifted(alpha, 1)
        two = jnp.where(may_skip, _shifted(alpha, 2), _ZERO)
        following = jax.nn.logsumexp(jnp.stack([alpha, one, two]), axis=0) + emission
        running = (time < input_lengths)[:, None]
        return jnp.where(running, jnp.maximum(following, _ZERO), alpha), None

    last, _ = lax.scan(advance, first, (emitted[1:], jnp.arange(1, steps)))
    # It may end in the last label or in the blank behind it.
    ends = jnp.stack([2 * target_lengths, jnp.maximum(2 * target_lengths - 1, 0)], 1)
    finals = jnp.take_along_axis(last, ends, axis=1)
    finals = jnp.where(jnp.stack([target_lengths >= 0, target_lengths > 0], 1), finals, _ZERO)
    total = jax.nn.logsumexp(finals, axis=1)
    return jnp.where(total < _ZERO / 2, jnp.inf, -total)


def _shifted(alpha: jax.Array, by: int) -> jax.Array:
    return jnp.pad(alpha[:, :-by], [(0, 0), (by, 0)], constant_values=_ZERO)[:, : alpha.shape[1]]


def _padded(targets: jax.Array, lengths: jax.Array, batch: int) -> jax.Array:
    """Labels given one example after the other, as rows."""
    starts = jnp.cumsum(lengths) - lengths
    index = starts[:, None] + jnp.arange(targets.shape[0])[None]
    return targets[jnp.clip(index, 0, targets.shape[0] - 1)]
