"""What `fit`, `evaluate` and `predict` are given, as the user gave it."""

import operator
from typing import Any

import attrs


def positive(name: str, value: Any) -> int | None:
    """An argument that is a positive integer, or None."""
    if value is None:
        return None
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(f"{name} must be a positive integer. Received: {name}={value!r}.")
    return number


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
