"""The host's end of an infeed: elements of a dataset in order, the next ones fetched while the device works."""

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import numpy as np
import tensorflow as tf

from openipu.runtime import aligned
from openipu.runtime.signals import start

Element = list[np.ndarray]

# Seconds that closing waits for the next element.
_PATIENCE = 0.5

_alive: "weakref.WeakSet[Reader]" = weakref.WeakSet()


def sizes(spec: tf.TensorSpec) -> tuple[int, ...]:
    """The static shape of a value."""
    return tuple(int(size) for size in spec.shape.as_list() if size is not None)


class Reader:
    """Hands out the elements of a dataset, in blocks or one by one, from any thread.

    Args:
      elements: flat elements in order.
      specs: shape and dtype of each of their parts.
      name: of the queue, for messages.
    """

    def __init__(self, elements: Iterator[Sequence[tf.Tensor]], specs: Sequence[tf.TensorSpec], name: str) -> None:
        self._elements = elements
        self._specs = list(specs)
        self._name = name
        self._waiting: deque[Element] = deque()
        self._lock = threading.Lock()
        # Held by whoever takes elements. Nothing else says whether a thread still does: its handle may have been lost
        # by a signal.
        self.source = threading.RLock()
        self.ahead: _Ahead | None = None
        _alive.add(self)

    def block(self, steps: int, replicas: int) -> list[np.ndarray]:
        """The elements of so many steps, stacked as [replica, step, ...]: element k * replicas + r goes to replica r.

        Raises:
          OutOfRangeError: the dataset has fewer; the next call gets those that are left.
        """
        with self._lock:
            ready = self._settle((steps, replicas))
            block = ready if ready is not None else self.fill(steps, replicas)
            # Known before it begins: what is fetched is never forgotten.
            self.ahead = _Ahead(self, steps, replicas)
            self.ahead.begin()
            return block

    def offer(self, count: int, taken: Callable[[list[Element]], bool]) -> None:
        """Offer the next elements.

        Args:
          count: how many.
          taken: whether they are still wanted, when all are there; otherwise they are the next ones again.

        Raises:
          OutOfRangeError: the dataset has fewer; the next call gets those that are left.
        """
        with self._lock:
            self._settle(None)
            with self.source:
                elements: list[Element] = []
                wanted = False
                try:
                    while len(elements) < count:
                        elements.append(self._next())
                    wanted = taken(elements)
                finally:
                    if not wanted:
                        self.put_back(elements)

    def give_back(self, elements: Sequence[Element]) -> None:
        """Elements that were not used after all, to be the next ones again."""
        with self._lock:
            self._settle(None)
            self.put_back(elements)

    def put_back(self, elements: Sequence[Element]) -> None:
        """Elements that were taken last, to be the next ones again."""
        with self.source:
            self._waiting.extendleft(reversed(elements))

    def close(self) -> None:
        """Wait a moment for what is being fetched; it is not wanted any more."""
        self.ahead = None
        # The user's own code may sleep in there, and somebody waits for this.
        if self.source.acquire(timeout=_PATIENCE):
            self.source.release()

    def _settle(self, wanted: tuple[int, int] | None) -> list[np.ndarray] | None:
        """The block that was fetched ahead, if it is the one wanted; otherwise its elements are the next ones."""
        # Waits until it is fetched. Whoever waits may be interrupted, and asks again later.
        with self.source:
            ahead, self.ahead = self.ahead, None
            if ahead is None:
                return None
            if ahead.error is not None and not isinstance(ahead.error, tf.errors.OutOfRangeError):
                raise ahead.error
            if ahead.block is None:
                # The dataset ended, and what was left is waiting; or nothing was fetched yet.
                return None
            if (ahead.steps, ahead.replicas) == wanted:
                return ahead.block
            self.put_back(ahead.elements(ahead.block))
            return None

    def fill(self, steps: int, replicas: int) -> list[np.ndarray]:
        """The next elements as a block; all of them wait again if it cannot be filled."""
        block = [aligned((replicas, steps, *sizes(s)), np.dtype(s.dtype.as_numpy_dtype)) for s in self._specs]
        taken: list[Element] = []
        with self.source:
            try:
                for number in range(steps * replicas):
                    step, replica = divmod(number, replicas)
                    element = self._next()
                    for part, value in zip(block, element, strict=True):
                        part[replica, step] = value
                    taken.append([part[replica, step] for part in block])
            except tf.errors.OutOfRangeError as error:
                self.put_back(taken)
                self.refuse(steps * replicas, len(taken), error)
            except BaseException:
                self.put_back(taken)
                raise
        return block

    def refuse(self, count: int, left: int, cause: Exception | None = None) -> NoReturn:
        """There are not so many elements."""
        raise tf.errors.OutOfRangeError(
            None,
            None,
            f"{self._name} ended early: the program takes {count} elements, {left} were left. "
            "Repeat the dataset (dataset.repeat()), or run fewer iterations.",
        ) from cause

    def _next(self) -> Element:
        if self._waiting:
            return self._waiting.popleft()
        try:
            return [np.asarray(part) for part in next(self._elements)]
        except StopIteration:
            raise tf.errors.OutOfRangeError(
                None, None, f"{self._name} ended: the dataset has no more elements."
            ) from None


class _Ahead:
    """A block that is fetched while the program runs."""

    def __init__(self, reader: Reader, steps: int, replicas: int) -> None:
        self._reader = reader
        self.steps, self.replicas = steps, replicas
        self.block: list[np.ndarray] | None = None
        self.error: Exception | None = None

    def begin(self) -> None:
        """Fetch, in a thread."""
        start(threading.Thread(target=self._fetch, name="openipu-infeed", daemon=True))

    def elements(self, block: list[np.ndarray]) -> list[Element]:
        """The elements of a block, in order."""
        order = [(r, k) for k in range(self.steps) for r in range(self.replicas)]
        return [[part[place] for part in block] for place in order]

    def _fetch(self) -> None:
        with self._reader.source:
            if self._reader.ahead is not self:
                return
            try:
                block = self._reader.fill(self.steps, self.replicas)
            except Exception as error:
                self.error = error
                return
            if self._reader.ahead is self:
                self.block = block
            else:
                # Nobody will ask for it.
                self._reader.put_back(self.elements(block))


@atexit.register
def _close_all() -> None:
    """TensorFlow must not be left in the middle of an element when the interpreter ends."""
    for reader in list(_alive):
        reader.close()
