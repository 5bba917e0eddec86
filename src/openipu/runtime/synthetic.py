"""Data that is made where the device has it and never brought there, for measuring; results mean nothing."""

from collections.abc import Sequence

import attrs
import jax.numpy as jnp
import numpy as np

from openipu.program import Plan, Slot
from openipu.runtime.resident import Resident

# "normal" and "uniform" random numbers, or this number everywhere.
Kind = str | float


@attrs.frozen
class Synthetic:
    """Which data is synthetic.

    Attributes:
      kind: of numbers.
      feeds: the inputs of executions.
      parameters: the values that programs work on; those of the host stay as they are.
      results: what comes back: zeros in place of results, when these have been computed.
    """

    kind: Kind = 0.0
    feeds: bool = False
    parameters: bool = False
    results: bool = False

    def feeds_of(self, batch: Sequence[Slot], plan: Plan) -> list[np.ndarray]:
        """Inputs of one execution, the same at every one, with the axes of feeds.

        Args:
          batch: the inputs of one step.
          plan: how many steps and replicas there are.
        """
        random = np.random.default_rng(0)
        return [
            _numbers(plan.layout.shape(slot.shape, plan.device_iterations), slot.dtype, self.kind, random)
            for slot in batch
        ]

    def resident(self, slot: Slot) -> Resident:
        """A value of its own for one slot."""
        value = _numbers(slot.shape, slot.dtype, self.kind, np.random.default_rng(0))
        return Resident(read=lambda: value, write=lambda _: None)


# All data is the user's.
REAL = Synthetic()


def _numbers(shape: tuple[int, ...], dtype: np.dtype, kind: Kind, random: np.random.Generator) -> np.ndarray:
    if not isinstance(kind, str):
        return np.full(shape, kind).astype(dtype)
    if not jnp.issubdtype(dtype, jnp.floating):
        # Random integers would not be valid labels, indices or counts.
        return np.zeros(shape, dtype)
    return (random.standard_normal(shape) if kind == "normal" else random.random(shape)).astype(dtype)
