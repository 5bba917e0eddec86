"""Synthetic data, for measuring: which kind the options ask for."""

from openipu.runtime import REAL, Synthetic
from openipu.torch.options import Options

# The backend's numbers.
_KINDS = {1: 0.0, 2: "normal", 3: "uniform"}


def of_options(options: Options) -> Synthetic:
    """What is synthetic when a model runs with these options: inputs and results, or nothing."""
    number = int(options._Popart.options.get("syntheticDataMode", 0))
    if number == 0:
        return REAL
    if number not in _KINDS:
        raise ValueError(
            "syntheticDataMode must be 0 (off), 1 (zeros), 2 (random normal) or 3 (random uniform). "
            f"Received: {number}."
        )
    return Synthetic(_KINDS[number], feeds=True, results=True)
