"""Batches of a dataset of tensors, each gathered at once instead of sample by sample."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

from openipu.torch.boundary import replace_fetcher


class Rows:
    """Fetches whole batches from tensors; takes the place of the fetcher of torch's iterator."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors

    def fetch(self, numbers: Sequence[int]) -> list[torch.Tensor]:
        """The rows with these numbers, as torch collates them: a list with one new tensor for each of the dataset."""
        rows = torch.as_tensor(numbers)
        return [tensor[rows] for tensor in self._tensors]


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
