"""The part of a dataset that belongs to one of several processes."""

from typing import Any

import torch
from torch.utils.data import Dataset


class Partition(Dataset):
    """A block of consecutive samples, or of consecutive entries of a shuffled order that all processes share.

    The order is in shared memory: worker processes that live on from epoch to epoch see every new one.

    Args:
      dataset: the whole dataset, with a length.
      process_id: the number of this process.
      processes: how many there are.
      step: samples per batch of the loader; with `drop_last` blocks are a multiple of it.
      drop_last: whether all blocks have the same length, samples that do not fit being left out.
      seed: the seed of the shuffled order; None for the dataset's own order.
    """

    def __init__(
        self, dataset: Any, process_id: int, processes: int, step: int, drop_last: bool, seed: int | None
    ) -> None:
        self.dataset = dataset
        self.total = len(dataset)
        if drop_last:
            length = step * (self.total // (step * processes))
            start = process_id * length
        else:
            start, end = _cut(self.total, process_id, processes), _cut(self.total, process_id + 1, processes)
            length = end - start
        self.start = start
        # Without a fixed block length there are no leftovers to take turns with.
        self.leftover = self.total % length if drop_last and length else 0
        self.order = torch.arange(start, start + length).share_memory_()
        self.generator = None if seed is None else torch.Generator().manual_seed(seed)
        self.epochs = 0

    def new_epoch(self) -> None:
        """Draws the order of the next epoch, the same in all processes."""
        if self.generator is None:
            return
        order = torch.randperm(self.total, generator=self.generator)
        start = self.start + (self.leftover if self.epochs % 2 else 0)
        self.order.copy_(order[start : start + len(self.order)])
        self.epochs += 1

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index must be below {len(self)}, the samples of this process. Received: {index}.")
        return self.dataset[int(self.order[index])]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if not self.order.is_shared():
            self.order.share_memory_()


def _cut(total: int, process: int, processes: int) -> int:
    """Where the block of a process begins when the lengths differ by at most one."""
    return total * process // processes
