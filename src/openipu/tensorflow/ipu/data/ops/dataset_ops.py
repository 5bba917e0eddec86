"""Datasets that deliver elements in complete groups."""

from typing import Any

from tensorflow.python.data.ops import dataset_ops

__all__ = ["BufferDataset"]


class BufferDataset(dataset_ops.UnaryUnchangedStructureDataset):
    """The elements of a dataset, without those at its end that do not fill a group.

    Args:
      input_dataset: the dataset.
      buffer_size: elements of a group.
    """

    def __init__(self, input_dataset: Any, buffer_size: Any) -> None:
        self._grouped = input_dataset.batch(buffer_size, drop_remainder=True).unbatch()
        super().__init__(input_dataset, self._grouped._variant_tensor)
