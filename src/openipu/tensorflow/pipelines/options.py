"""The options of pipelines made by hand."""

import enum
from collections.abc import Mapping
from typing import Any

import attrs
import tensorflow as tf


class PipelineSchedule(enum.IntEnum):
    """The order in which stages take micro-batches."""

    Grouped = 0
    Interleaved = 1
    Sequential = 2


class RecomputationMode(enum.Enum):
    """When activations that were not stored are computed again."""

    Auto = 0
    RecomputeThenBackpropagate = 1
    RecomputeAndBackpropagateInterleaved = 2


@attrs.frozen
class _Options:
    """What `get_proto` returns: the options under the names of the original's message."""

    convolution_options: tuple[tuple[str, str], ...]
    matmul_options: tuple[tuple[str, str], ...]
    slice_options: tuple[tuple[str, str], ...]


class PipelineStageOptions:
    """Tuning options of one stage; checked, and otherwise ignored.

    Args:
      convolution_options, matmul_options, slice_options: strings by name.
    """

    def __init__(
        self,
        convolution_options: Mapping[str, str] | None = None,
        matmul_options: Mapping[str, str] | None = None,
        slice_options: Mapping[str, str] | None = None,
    ) -> None:
        self._options = _Options(
            _pairs("convolution_options", convolution_options),
            _pairs("matmul_options", matmul_options),
            _pairs("slice_options", slice_options),
        )

    def get_proto(self) -> _Options:
        """The options as data."""
        return self._options


def recomputation_checkpoint(tensors: Any, name: str | None = None) -> Any:
    """The tensors as they are, marked as worth storing rather than computing again."""
    with tf.name_scope(name or "recomputation_checkpoint"):
        return tf.nest.map_structure(tf.identity, tensors)


def _pairs(argument: str, options: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    if options is None:
        return ()
    if not isinstance(options, dict):
        raise TypeError(f"{argument} must be a dict of strings. Received: {argument}={options!r}.")
    return tuple((str(name), str(value)) for name, value in options.items())
