"""Synthetic data, for measuring: which kind the options ask for."""

from openipu.runtime import made
from openipu.torch.options import Options

# The backend's numbers.
_KINDS: dict[int, made.Kind | None] = {0: None, 1: 0.0, 2: "normal", 3: "uniform"}


def kind(options: Options) -> made.Kind | None:
    """The kind of numbers to make; None for real data."""
    number = int(options._Popart.options.get("syntheticDataMode", 0))
    if number not in _KINDS:
        raise ValueError(
            "syntheticDataMode must be 0 (off), 1 (zeros), 2 (random normal) or 3 (random uniform). "
            f"Received: {number}."
        )
    return _KINDS[number]
