"""The host's end of an infeed whose elements come again: they are computed once, and blocks are parts of a table."""

import math
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from openipu.runtime.feed import aligned
from openipu.runtime.signals import start
from openipu.runtime.tables import LARGEST
from openipu.tensorflow.feeds.reader import Element, Reader, sizes
from openipu.tensorflow.recurrence import Recurrence


class RecurringReader(Reader):
    """A `Reader` that asks its dataset for one period only.

    TensorFlow needs a core for its elements, which the program has better use for.

    Args:
      elements, specs, name: as `Reader` has them.
      recurrence: when elements come again.
    """

    def __init__(
        self, elements: Iterator[Sequence[tf.Tensor]], specs: Sequence[tf.TensorSpec], name: str, recurrence: Recurrence
    ) -> None:
        super().__init__(elements, specs, name)
        self._period, self._total = recurrence.period, recurrence.total
        self._table = [aligned((self._period, *sizes(s)), np.dtype(s.dtype.as_numpy_dtype)) for s in specs]
        self._filled = 0
        self._position = 0
        # Up to where a thread fills the table; a signal's exception, which only the main thread gets, loses nothing.
        self._goal = 0
        self._changed = threading.Condition(self.source)
        # Where an element could not be computed there is one less, and nobody counts on the others.
        self._error: Exception | None = None
        self._plain = False

    @staticmethod
    def can_hold(recurrence: Recurrence, specs: Sequence[tf.TensorSpec]) -> bool:
        """Whether elements come again and a table has room for them."""
        size = sum(math.prod(sizes(s)) * s.dtype.size for s in specs)
        return 0 < recurrence.period < recurrence.total and recurrence.period * size <= LARGEST

    def block(self, steps: int, replicas: int) -> list[np.ndarray]:
        with self._lock:
            if not self._plain:
                count = steps * replicas
                self._wait_for(count)
                rows = [self._rows(part, self._position, count) for part in self._table]
                self._position += count
                self._fill_to(self._position + count)
                return [_dealt(part, steps, replicas) for part in rows]
        return super().block(steps, replicas)

    def offer(self, count: int, taken: Callable[[list[Element]], bool]) -> None:
        with self._lock:
            if not self._plain:
                self._wait_for(count)
                places = [i % self._period for i in range(self._position, self._position + count)]
                if taken([[part[place] for part in self._table] for place in places]):
                    self._position += count
                return
        super().offer(count, taken)

    def give_back(self, elements: Sequence[Element]) -> None:
        with self._lock:
            if not self._plain:
                self._position -= len(elements)
                return
        super().give_back(elements)

    def close(self) -> None:
        self._error = tf.errors.CancelledError(None, None, f"{self._name} was deleted or started anew.")
        super().close()

    def _wait_for(self, count: int) -> None:
        """Until the next elements are in the table."""
        if self._position + count > self._total:
            self.refuse(count, int(self._total - self._position))
        end = min(self._position + count, self._period)
        if self._filled >= end:
            return
        self._fill_to(end)
        with self._changed:
            self._changed.wait_for(lambda: self._filled >= end or self._error is not None)
            if self._filled < end and self._error is not None:
                self._plain = True
                self.put_back([[part[i] for part in self._table] for i in range(self._position, self._filled)])
                raise self._error

    def _fill_to(self, end: int) -> None:
        """Compute elements in a thread."""
        if self._filled < min(end, self._period):
            self._goal = min(end, self._period)
            start(threading.Thread(target=self._fill, name="openipu-infeed", daemon=True))

    def _fill(self) -> None:
        with self._changed:
            try:
                while self._filled < self._goal and self._error is None:
                    for part, value in zip(self._table, self._next(), strict=True):
                        part[self._filled] = value
                    self._filled += 1
                if self._filled == self._period:
                    self._elements = iter(())
            except Exception as error:
                self._error = error
            self._changed.notify_all()

    def _rows(self, part: np.ndarray, first: int, count: int) -> np.ndarray:
        """Elements in order, without a copy unless the table ends among them."""
        first %= self._period
        if first + count <= self._period:
            return part[first : first + count]
        block = aligned((count, *part.shape[1:]), part.dtype)
        return np.take(part, range(first, first + count), axis=0, out=block, mode="wrap")


def _dealt(rows: np.ndarray, steps: int, replicas: int) -> np.ndarray:
    """Elements as [replica, step, ...]."""
    lanes = rows.reshape(steps, replicas, *rows.shape[1:]).swapaxes(0, 1)
    if replicas == 1:
        return lanes
    block = aligned(lanes.shape, lanes.dtype)
    block[:] = lanes
    return block
