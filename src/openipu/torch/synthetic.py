"""Data made on the device, for measuring: nothing is transferred, and results mean nothing."""

from collections.abc import Sequence

import numpy as np

from openipu.program import Plan, Slot
from openipu.torch.options import Options

_ZEROS, _UNIFORM = 1, 3


def mode(options: Options) -> int:
    """The backend's number for the kind of synthetic data; 0 for real data."""
    return int(options._Popart.options.get("syntheticDataMode", 0))


def feeds(batch: Sequence[Slot], plan: Plan, kind: int) -> list[np.ndarray]:
    """Inputs for one execution, the same at every one.

    Args:
      batch: the inputs of a step.
      plan: how many steps and replicas there are.
      kind: the backend's number: zeros, normally or uniformly distributed numbers.

    Returns:
      Arrays with the axes of feeds. Integers are zero: random ones would not be valid labels or indices.
    """
    random = np.random.default_rng(0)
    lead = (plan.device_iterations,) if plan.replicas == 1 else (plan.device_iterations, plan.replicas)
    made = []
    for slot in batch:
        shape = (*lead, *slot.shape)
        if kind == _ZEROS or not np.issubdtype(slot.dtype, np.floating):
            made.append(np.zeros(shape, slot.dtype))
        else:
            numbers = random.random(shape) if kind == _UNIFORM else random.standard_normal(shape)
            made.append(numbers.astype(slot.dtype))
    return made
