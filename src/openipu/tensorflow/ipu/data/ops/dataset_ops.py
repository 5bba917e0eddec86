"""Datasets that deliver elements in complete groups."""

from typing import Any

from openipu.tensorflow.boundary import UnchangedStructureDataset, variant

__all__ = ["BufferDataset"]


class BufferDataset(UnchangedStructureDataset):
    """The elements of a dataset, without those at its end that do not fill a group.

    Args:
      input_dataset: the dataset.
      buffer_size: elements of a group.
    """

    def __init__(self, input_dataset: Any, buffer_size: Any) -> None:
        self._grouped = input_dataset.batch(buffer_size, drop_remainder=True).unbatch()
        super().__init__(input_dataset, variant(self._grouped))
