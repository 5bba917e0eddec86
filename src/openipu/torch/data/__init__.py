"""Batches for executors: the loader, and the process that reads ahead."""

from openipu.torch.data.accessor import AsynchronousDataAccessor
from openipu.torch.data.loader import DataLoader

__all__ = ["AsynchronousDataAccessor", "DataLoader"]
