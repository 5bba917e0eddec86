"""Batches of a dataset of tensors, each gathered at once instead of sample by sample."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

from openipu.torch.boundary import replace_fetcher


class Rows:
    """Fetches whole batches from tensors; takes the place of the fetcher of torch's iterator."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors

    def fetch(self, numbers: Sequence[int]) -> list[torch.Tensor]:
        """The rows with these numbers, as torch collates them: a list with one new tensor for each of the dataset."""
        rows = np.asarray(numbers, np.int64)
        return [_gathered(tensor, rows) for tensor in self._tensors]


def _gathered(tensor: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
    """Rows of a tensor, copied by NumPy if it can.

    Torch would copy them with all threads of its OpenMP, which then look for more work for some milliseconds: one
    of the cores that the execution begins on meanwhile.
    """
    array, count = _shared(tensor), len(tensor)
    if array is None or not rows.size or rows.min() < -count or rows.max() >= count:
        return tensor[torch.from_numpy(rows)]
    gathered = torch.empty((len(rows), *tensor.shape[1:]), dtype=tensor.dtype)
    # All rows are there; to look once more, NumPy would copy them twice.
    np.take(array, rows, axis=0, out=gathered.numpy(), mode="wrap")
    return gathered


def _shared(tensor: torch.Tensor) -> np.ndarray | None:
    """The numbers as NumPy sees them; None if it has no such type, or they are yet to be negated or differentiated."""
    try:
        return tensor.numpy()
    except (TypeError, RuntimeError):
        return None


def gather(loader: DataLoader, batches: Any) -> Any:
    """The loader's iterator, made to gather where that gives what loading one sample after the other would."""
    dataset = loader.dataset
    # A subclass may load its samples in a way of its own.
    if type(dataset) is not TensorDataset or loader.batch_sampler is None or loader.collate_fn is not default_collate:
        return batches
    if loader.num_workers == 0 and all(map(_plain, dataset.tensors)):
        replace_fetcher(batches, Rows(dataset.tensors))
    return batches


def _plain(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
