"""Datasets that workers in other processes can import."""

import os
import sys
import time

import torch

from openipu.torch.structures import ICustomArgParser


class Numbers(torch.utils.data.Dataset):
    """Sample i is a vector of i and the label i."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(index)
        return torch.full((3,), float(index)), index


class Stream(torch.utils.data.IterableDataset):
    """The numbers below `length`, shared out over the workers of a loader."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        return (torch.tensor(number) for number in range(start, self.length, step))


def nothing(worker_id):
    """A worker_init_fn, so that no warning is logged."""


class Failing(Numbers):
    """Fails at sample `at`."""

    def __init__(self, length, at):
        super().__init__(length)
        self.at = at

    def __getitem__(self, index):
        if index == self.at:
            raise ValueError("this sample is broken")
        return super().__getitem__(index)


class Killed(Numbers):
    """The process that loads sample 4 dies."""

    def __getitem__(self, index):
        if index == 4:
            os._exit(3)
        return super().__getitem__(index)


class Stuck(Numbers):
    """Sample 4 takes for ever."""

    def __getitem__(self, index):
        while index == 4:
            time.sleep(60)
        return super().__getitem__(index)


class Modules(Numbers):
    """The label says whether the loading process has imported a framework it must not have."""

    def __getitem__(self, index):
        return torch.tensor([name in sys.modules for name in ("jax", "tensorflow", "keras")])


class Pair:
    """A container type of the user's own."""

    def __init__(self, a, b):
        self.a, self.b = a, b


class PairParser(ICustomArgParser):
    """How a `Pair` is taken apart and put together."""

    def yieldTensors(self, struct):
        yield struct.a
        yield struct.b

    def reconstruct(self, original_structure, tensor_iterator):
        return Pair(next(tensor_iterator), next(tensor_iterator))


class Counted:
    """An iterable that counts, in shared memory, the items that were read."""

    def __init__(self, length, read):
        self.length = length
        self.read = read

    def __len__(self):
        return self.length

    def __iter__(self):
        for index in range(self.length):
            self.read += 1
            yield torch.tensor([index])


class Items:
    """An iterable of given items."""

    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        return iter(self.items)
