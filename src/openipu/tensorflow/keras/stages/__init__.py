"""Pipeline stages of Keras models."""

from typing import Any


def is_pipelined(model: Any) -> bool:
    """Whether the model has pipeline stages."""
    return bool(model._ipu.stages)


def stage_count(model: Any) -> int:
    """How many stages the model has."""
    raise AssertionError("replaced by the room's owner")
