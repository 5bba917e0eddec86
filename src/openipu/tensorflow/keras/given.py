"""What `fit`, `evaluate` and `predict` are given, as the user gave it."""

from typing import Any

import attrs


@attrs.frozen(eq=False)
class Data:
    """What the user gave as data."""

    x: Any = None
    y: Any = None
    sample_weight: Any = None
    class_weight: dict | None = None
    batch_size: int | None = None
    steps: int | None = None
    shuffle: bool | str = False


@attrs.frozen(eq=False)
class Validation:
    """What the user gave for validation during training."""

    data: Any
    split: float
    steps: int | None
    batch_size: int | None
    frequency: Any

    def due(self, epoch: int) -> bool:
        """Whether validation follows this epoch (counted from 0)."""
        if isinstance(self.frequency, int):
            return (epoch + 1) % self.frequency == 0
        return epoch + 1 in self.frequency
