"""Arrays that stay on the device, from which each step picks its rows: shuffled data is never gathered on the host."""

from collections.abc import Sequence

import jax
import numpy as np

from openipu.program import Slot
from openipu.runtime.feed import aligned
from openipu.runtime.placing import put

# Tables are a second copy of the user's arrays; beyond this, batches are gathered on the host as they are needed.
LARGEST = 2**30


def rows_for(arrays: Sequence[np.ndarray]) -> int | None:
    """The size of tables for these arrays, or None when they are too large to be on the device as a whole.

    The size is part of the compiled program, so it is rounded up (to three binary digits): arrays that grow or
    shrink a little find the program they had. The memory of rows beyond the data is never touched.
    """
    count = len(arrays[0])
    if sum(a.nbytes for a in arrays) > LARGEST:
        return None
    step = 1 << max(count.bit_length() - 3, 0)
    return -(-count // step) * step


def place(arrays: Sequence[np.ndarray], slots: Sequence[Slot], rows: int, sharding: jax.sharding.Sharding) -> list:
    """The arrays as tables of so many rows."""
    tables = []
    for array, slot in zip(arrays, slots, strict=True):
        table = aligned((rows, *array.shape[1:]), np.dtype(slot.dtype))
        table[: len(array)] = array
        tables.append(table)
    with jax.enable_x64(True):
        return [put(table, sharding) for table in tables]
