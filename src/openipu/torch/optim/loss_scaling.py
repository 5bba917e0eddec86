"""Automatic loss scaling: the factor of the loss follows how close float16 gradients come to their largest value."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np

FACTOR = "lossScaleUpdateFactor"
_SEEN = "lossScaleStatistics"
_COUNT = "lossScaleUpdates"
# The largest scale: a float16 loss must be able to hold it.
_LIMIT = 2.0**15


@attrs.frozen
class Automatic:
    """When the factor changes.

    Attributes:
      period: updates between two changes.
      edge: from which share of the largest float16 number on an element counts as large.
      threshold: the share of large elements from which on the factor is halved; below, it is doubled.
    """

    period: int = 8
    edge: float = 0.125
    threshold: float = 1e-7


def settings(backend: Mapping[str, Any]) -> Automatic | None:
    """What backend options ask for; None when the scale is fixed."""
    prefix = "automaticLossScalingSettings."
    if not backend.get(f"{prefix}enabled"):
        return None
    usual = Automatic()
    return Automatic(
        period=max(int(backend.get(f"{prefix}updatePeriod", usual.period)), 1),
        edge=float(backend.get(f"{prefix}binEdgeLocation", usual.edge)),
        threshold=float(backend.get(f"{prefix}thresholdUpperCountProportion", usual.threshold)),
    )


def initial() -> dict[str, np.ndarray]:
    """The state before the first update."""
    return {FACTOR: np.ones((), np.float32), _SEEN: np.zeros(2, np.float32), _COUNT: np.zeros((), np.int32)}


def statistics(gradients: Sequence[jax.Array], automatic: Automatic) -> jax.Array:
    """How many elements of float16 gradients are large, and how many there are."""
    halves = [g for g in gradients if g.dtype == np.float16]
    edge = automatic.edge * float(np.finfo(np.float16).max)
    # What is not even a number has overflowed on the way.
    large = sum((jnp.sum(~(jnp.abs(g).astype(jnp.float32) <= edge), dtype=jnp.float32) for g in halves), jnp.float32(0))
    return jnp.stack([large, jnp.float32(sum(g.size for g in halves))])


def scale(base: jax.Array, current: Mapping[str, Any]) -> jax.Array:
    """The factor of the loss now, in float32."""
    return jnp.minimum(base.astype(jnp.float32) * current[FACTOR], _LIMIT)


def advanced(current: Mapping[str, Any], base: jax.Array, seen: jax.Array, automatic: Automatic) -> dict[str, Any]:
    """The state after an update.

    Args:
      current: the state before.
      base: the optimizer's own factor.
      seen: statistics of the gradients of this update.
      automatic: when the factor changes.
    """
    seen, count = current[_SEEN] + seen, current[_COUNT] + 1
    due = count >= automatic.period
    too_many = seen[0] > automatic.threshold * seen[1]
    factor = current[FACTOR] * jnp.where(too_many, 0.5, 2.0)
    # Doubling stops where the loss could not hold the scale; without float16 gradients nothing is known.
    held = (~too_many & (base.astype(jnp.float32) * factor > _LIMIT)) | (seen[1] == 0)
    return {
        FACTOR: jnp.where(due & ~held, factor, current[FACTOR]).astype(jnp.float32),
        _SEEN: jnp.where(due, 0.0, seen).astype(jnp.float32),
        _COUNT: jnp.where(due, 0, count).astype(jnp.int32),
    }
