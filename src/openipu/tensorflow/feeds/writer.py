"""The host's end of an outfeed: what programs left there, until somebody reads it."""

import logging
import threading
from collections import deque
from collections.abc import Sequence

import numpy as np

log = logging.getLogger("openipu.tensorflow")

# What is never read is forgotten from here on, the oldest first.
LARGEST = 2**30


class Writer:
    """Keeps stacked values, from any thread; memory is bounded.

    Args:
      name: of the queue, for messages.
      last: keep the latest value only.
    """

    def __init__(self, name: str, last: bool) -> None:
        self._name = name
        self._last = last
        self._blocks: deque[list[np.ndarray]] = deque()
        self._bytes = 0
        self._warned = False
        self._lock = threading.Lock()

    def put(self, block: Sequence[np.ndarray]) -> None:
        """Values of one execution, each part stacked as [step, ...]."""
        if not block or not len(block[0]):
            return
        kept = [part[-1:] for part in block] if self._last else list(block)
        with self._lock:
            if self._last:
                self._blocks.clear()
                self._bytes = 0
            self._blocks.append(kept)
            self._bytes += sum(part.nbytes for part in kept)
            while self._bytes > LARGEST and len(self._blocks) > 1:
                self._bytes -= sum(part.nbytes for part in self._blocks.popleft())
                self._warn()

    def take(self) -> list[np.ndarray] | None:
        """All that is there, each part stacked as [step, ...], and forget it; None if there is nothing."""
        with self._lock:
            blocks = list(self._blocks)
            if not self._last:
                self._blocks.clear()
                self._bytes = 0
        if not blocks:
            return None
        return [np.concatenate(parts) if len(blocks) > 1 else parts[0] for parts in zip(*blocks, strict=True)]

    def take_one(self) -> list[np.ndarray] | None:
        """The oldest value, and forget it; None if there is nothing."""
        with self._lock:
            if not self._blocks:
                return None
            first = self._blocks[0]
            value = [part[0] for part in first]
            self._blocks[0] = [part[1:] for part in first]
            if len(first[0]) == 1:
                self._blocks.popleft()
            self._bytes -= sum(part.nbytes for part in value)
            return value

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._blocks.clear()
            self._bytes = 0

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "%s holds more than %d MiB that nobody has read: the oldest values are dropped. Call dequeue() after "
                "every execution, or use IPUOutfeedMode.LAST.",
                self._name,
                LARGEST >> 20,
            )
