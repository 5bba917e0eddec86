"""Synthetic data, for measuring: what TF_POPLAR_FLAGS keeps from going between host and device.

What a dataset yields is the infeed, what Keras brings back the outfeed. Variables are parameters, and so are the
arguments and results of a function given to `strategy.run`.
"""

from collections.abc import Sequence

import jax
import numpy as np
import tensorflow as tf

from openipu import environment
from openipu.program import Plan, Slot
from openipu.runtime import Resident, Results


def instead_of(category: str) -> bool:
    """Whether the flags ask for data of this category ("infeed", "seed", ...) to stay where it is."""
    return category in environment.poplar_flags().synthetic_categories


def feeds(batch: Sequence[Slot], plan: Plan) -> list[np.ndarray]:
    """Inputs of one execution, with the axes of feeds.

    Args:
      batch: the inputs of one step.
      plan: how many steps and replicas there are.
    """
    random = np.random.default_rng(0)
    lead = (plan.device_iterations,) if plan.replicas == 1 else (plan.device_iterations, plan.replicas)
    return [_made((*lead, *slot.shape), slot.dtype, random) for slot in batch]


def parameters(slots: Sequence[Slot]) -> list[Resident]:
    """The device's values of variables that keep their own on the host."""

    def parameter(slot: Slot) -> Resident:
        made = _made(slot.shape, slot.dtype, np.random.default_rng(0))
        return Resident(read=lambda: made, write=lambda value: None)

    return [parameter(slot) for slot in slots]


def results(real: Results) -> Results:
    """Zeros in place of results, when these have been computed: what is measured includes the work."""
    outputs, finished = jax.block_until_ready((real.outputs, real.finished))
    return Results([np.zeros(o.shape, o.dtype) for o in outputs], [np.zeros(f.shape, f.dtype) for f in finished])


def _made(shape: tuple[int, ...], dtype: np.dtype, random: np.random.Generator) -> np.ndarray:
    """Values of the initializer; zeros without one, where the original leaves the memory as it was."""
    initializer = environment.poplar_flags().synthetic_data_initializer
    if initializer in ("random", "uniform", "normal"):
        if not tf.as_dtype(dtype).is_floating:
            # Random integers would not be valid labels, indices or counts.
            return np.zeros(shape, dtype)
        numbers = random.standard_normal(shape) if initializer == "normal" else random.random(shape)
        return numbers.astype(dtype)
    return np.full(shape, float(initializer or 0)).astype(dtype)
