"""Synthetic data, for measuring: what TF_POPLAR_FLAGS keeps from going between host and device.

What a dataset yields is the infeed, what Keras brings back the outfeed. Variables are parameters, and so are the
arguments and results of a function given to `strategy.run`.
"""

from collections.abc import Sequence

import jax
import numpy as np

from openipu import environment
from openipu.program import Plan, Slot
from openipu.runtime import Resident, Results, made


def instead_of(category: str) -> bool:
    """Whether the flags ask for data of this category ("infeed", "seed", ...) to stay where it is."""
    return category in environment.poplar_flags().synthetic_categories


def feeds(batch: Sequence[Slot], plan: Plan) -> list[np.ndarray]:
    """Inputs of one execution, with the axes of feeds.

    Args:
      batch: the inputs of one step.
      plan: how many steps and replicas there are.
    """
    return made.feeds(batch, plan, _kind())


def parameters(slots: Sequence[Slot]) -> list[Resident]:
    """The device's values of variables that keep their own on the host."""

    def parameter(slot: Slot) -> Resident:
        value = made.value(slot, _kind())
        return Resident(read=lambda: value, write=lambda _: None)

    return [parameter(slot) for slot in slots]


def results(real: Results) -> Results:
    """Zeros in place of results, when these have been computed: what is measured includes the work."""
    outputs, finished = jax.block_until_ready((real.outputs, real.finished))
    return Results([np.zeros(o.shape, o.dtype) for o in outputs], [np.zeros(f.shape, f.dtype) for f in finished])


def _kind() -> made.Kind:
    """What the initializer names; zeros without one, where the original leaves the memory as it was."""
    initializer = environment.poplar_flags().synthetic_data_initializer
    if initializer in ("random", "uniform", "normal"):
        return "normal" if initializer == "normal" else "uniform"
    return float(initializer or 0)
