"""Memory shared by two processes: a ring of slots, each with room for the tensors of one item.

The memory has no name in any file system, so that nothing is left of it when the last process that uses it is gone,
however it ended.
"""

import math
import mmap
import os
import tempfile
from collections.abc import Sequence

import attrs
import torch

_ALIGNMENT = 64  # bytes; a cache line, and enough for every vector instruction


@attrs.frozen
class Layout:
    """What every slot holds.

    Attributes:
      shapes: the shape of each tensor.
      dtypes: the type of each tensor.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each tensor begins in a slot, and where the slot ends."""
        found = [0]
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            size = math.prod(shape) * dtype.itemsize
            found.append(found[-1] + -(-size // _ALIGNMENT) * _ALIGNMENT)
        return tuple(found)


def layout_of(tensors: Sequence[torch.Tensor], rows: int | None) -> Layout:
    """The layout of slots for items like this one.

    Args:
      tensors: an item.
      rows: room along the first dimension, for items of a varying number of rows; None for the item's own.
    """
    shapes = [tuple(t.shape) if rows is None else (rows, *t.shape[1:]) for t in tensors]
    return Layout(tuple(shapes), tuple(t.dtype for t in tensors))


def allocate(layout: Layout, slots: int) -> int:
    """New memory for a ring.

    Returns:
      A file descriptor, the caller's to close.
    """
    size = max(layout.offsets[-1] * slots, 1)
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("openipu-ring", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def tensors_of(descriptor: int, layout: Layout, slots: int) -> list[list[torch.Tensor]]:
    """The tensors of every slot, as views of the memory; they keep it alive, the descriptor may be closed."""
    memory = mmap.mmap(descriptor, max(layout.offsets[-1] * slots, 1))
    found = []
    for slot in range(slots):
        start = slot * layout.offsets[-1]
        found.append(
            [
                _view(memory, start + offset, shape, dtype)
                for offset, shape, dtype in zip(layout.offsets, layout.shapes, layout.dtypes, strict=False)
            ]
        )
    return found


def _view(memory: mmap.mmap, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=offset).reshape(shape)
