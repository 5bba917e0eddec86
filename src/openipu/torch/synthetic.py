"""Synthetic data, for measuring: which kind the options ask for."""

from openipu.runtime import made
from openipu.torch.options import Options

# The backend's numbers; 0 is real data.
_KINDS: dict[int, made.Kind] = {1: 0.0, 2: "normal", 3: "uniform"}


def kind(options: Options) -> made.Kind | None:
    """The kind of numbers to make; None for real data."""
    return _KINDS.get(int(options._Popart.options.get("syntheticDataMode", 0)))
