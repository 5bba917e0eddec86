"""Data that is made where the device has it and never brought there, for measuring; results mean nothing."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from openipu.program import Plan, Slot

# "normal" and "uniform" random numbers, or this number everywhere.
Kind = str | float


def feeds(batch: Sequence[Slot], plan: Plan, kind: Kind) -> list[np.ndarray]:
    """Inputs of one execution, the same at every one, with the axes of feeds.

    Args:
      batch: the inputs of one step.
      plan: how many steps and replicas there are.
      kind: of numbers.
    """
    random = np.random.default_rng(0)
    lead = (plan.device_iterations,) if plan.replicas == 1 else (plan.device_iterations, plan.replicas)
    return [_made((*lead, *slot.shape), slot.dtype, kind, random) for slot in batch]


def value(slot: Slot, kind: Kind) -> np.ndarray:
    """A value for one slot."""
    return _made(slot.shape, slot.dtype, kind, np.random.default_rng(0))


def _made(shape: tuple[int, ...], dtype: np.dtype, kind: Kind, random: np.random.Generator) -> np.ndarray:
    if not isinstance(kind, str):
        return np.full(shape, kind).astype(dtype)
    if not jnp.issubdtype(dtype, jnp.floating):
        # Random integers would not be valid labels, indices or counts.
        return np.zeros(shape, dtype)
    return (random.standard_normal(shape) if kind == "normal" else random.random(shape)).astype(dtype)
