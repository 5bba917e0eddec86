"""Host data on its way to the device, fetched in the background so that the device never waits for Python."""

import contextlib
import math
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from openipu.runtime.signals import held, start

# XLA's CPU client uses host memory as it is when it starts at a multiple of this; otherwise it copies.
_ALIGNMENT = 64
# Bytes from which on pages are large.
_SMALLEST_COPY = 1 << 22

# How long an interrupted call waits for its feed.
_PATIENCE = 0.5

_END = object()


class Gatherer:
    """Gathers rows of an array into memory that the device uses without another copy, and uses that memory again.

    Fresh memory costs a page fault for every page, as much as the gathering itself. A buffer is filled again after
    `buffers` calls, so at most `buffers - 1` results may be in use at the same time.
    """

    def __init__(self, array: np.ndarray, buffers: int) -> None:
        self._array = array
        self._buffers: list[np.ndarray | None] = [None] * buffers
        self._next = 0

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """The rows, in one of the buffers."""
        shape = (len(rows), *self._array.shape[1:])
        out = self._buffers[self._next]
        if out is None or out.shape != shape:
            out = self._buffers[self._next] = aligned(shape, self._array.dtype)
        self._next = (self._next + 1) % len(self._buffers)
        # The rows are known to exist; any other mode fills a buffer of its own first.
        return np.take(self._array, rows, axis=0, out=out, mode="clip")


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Memory that XLA's CPU client uses without copying it."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def as_aligned(array: np.ndarray) -> np.ndarray:
    """An array where XLA's CPU client uses it without copying it.

    NumPy asks for large pages where memory is large, XLA does not: its copy costs a page fault for every small page.
    """
    if array.nbytes < _SMALLEST_COPY or (array.flags.c_contiguous and array.ctypes.data % _ALIGNMENT == 0):
        return array
    out = aligned(array.shape, array.dtype)
    out[...] = array
    return out


@contextlib.contextmanager
def prefetch(items: Iterable[Any], place: Callable[[Any], Any], depth: int = 2) -> Iterator[Iterator[Any]]:
    """Iterate over `items` while a thread fetches and places the next ones.

    Args:
      items: host data, one item an execution.
      place: puts an item on the device; called in the thread.
      depth: how many items may wait.

    Yields:
      An iterator over the placed items; an exception of the thread is raised where its item would have come.
    """
    waiting: queue.Queue = queue.Queue(maxsize=depth)
    stop = threading.Event()

    def offer(entry: tuple) -> bool:
        while not stop.is_set():
            with contextlib.suppress(queue.Full):
                waiting.put(entry, timeout=0.1)
                return True
        return False

    def fetch() -> None:
        try:
            for item in items:
                if not offer((place(item), None)):
                    return
            offer((_END, None))
        except BaseException as error:
            offer((_END, error))

    def drain() -> Iterator[Any]:
        while True:
            item, error = waiting.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item

    thread = threading.Thread(target=fetch, name="openipu-feed", daemon=True)
    try:
        start(thread)
        yield drain()
    finally:
        stop.set()
        # The user's own code may sleep in there. It is left to itself then: nobody asks it for more.
        if thread.ident is not None:
            thread.join(_PATIENCE)
        with held():
            # Python forgets a thread in a callback, where the exception of a signal would be lost.
            del thread
