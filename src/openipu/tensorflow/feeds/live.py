"""Feeds of a program that calls the host while it runs, because only the execution tells how often."""

import functools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from openipu.jax_boundary import ends_programs
from openipu.tensorflow.configuration import synthetic
from openipu.tensorflow.feeds import calls


@ends_programs
class _Ended(Exception):
    """Ends a program that runs; whoever waits for it knows why."""


class Live:
    """A queue that the running program calls.

    A program whose replicas do not stop together calls for those that have stopped as well, with the cursor where they
    stopped: what is asked twice gets the same answer, and what is given beyond the end is not counted.

    Attributes:
      error: of the user's data, in this execution.
    """

    def __init__(self, queue: Any, replicas: int) -> None:
        self._queue = queue
        self._replicas = replicas
        self._changed = threading.Condition()
        self._values: dict[tuple[int, int], list[np.ndarray]] = {}
        # One object for each execution; None between them, and when one is to end.
        self._execution: object | None = None
        self.error: BaseException | None = None

    @functools.cached_property
    def source(self) -> calls.Live:
        """What the lowering calls."""
        return calls.Live(self._call)

    def begin(self) -> None:
        """Before an execution."""
        with self._changed:
            self._values = {}
            self.error = None
            self._execution = object()

    def stop(self) -> None:
        """The execution is not wanted any more: it fails at its next call, or where it waits."""
        with self._changed:
            self._execution = None
            self._changed.notify_all()

    def finish(self, steps: int) -> None:
        """After an execution of so many steps."""
        raise NotImplementedError

    def _call(self, cursor: int, replica: int, *values: np.ndarray) -> Sequence[np.ndarray]:
        raise NotImplementedError

    def _refuse(self) -> None:
        if self.error is not None or self._execution is None:
            raise _Ended(f"The program that uses {self._queue.name!r} ends: its data did, or it was interrupted.")


class LiveInfeed(Live):
    """An infeed that is asked for one element after another.

    They are fetched in a thread: a program that waits for the user's own code can be told to stop, the code cannot.
    """

    def _call(self, cursor: int, replica: int, *values: np.ndarray) -> Sequence[np.ndarray]:
        with self._changed:
            while (cursor, replica) not in self._values:
                self._refuse()
                self._fetch()
            # Elements of steps before the last one are behind all replicas that still run.
            for key in [key for key in self._values if key[0] < cursor - 1]:
                del self._values[key]
            return self._values[cursor, replica]

    def _fetch(self) -> None:
        """The elements of one more step."""
        step = max((key[0] for key in self._values), default=-1) + 1
        if synthetic.instead_of("infeed"):
            element = [np.zeros(s.shape, s.dtype.as_numpy_dtype) for s in self._queue.flat_specs]
            self._values.update({(step, r): element for r in range(self._replicas)})
            return
        given = (self._execution, self._queue.reader(self._replicas), step)
        threading.Thread(target=self._offered, args=given, name="openipu-infeed", daemon=True).start()
        while (step, 0) not in self._values:
            self._changed.wait()
            self._refuse()

    def _offered(self, execution: object, reader: Any, step: int) -> None:
        def taken(elements: list[list[np.ndarray]]) -> bool:
            with self._changed:
                if self._execution is not execution:
                    return False
                self._values.update({(step, r): element for r, element in enumerate(elements)})
                self._fetched = step + 1
                self._changed.notify_all()
                return True

        try:
            reader.offer(self._replicas, taken)
        except BaseException as error:
            with self._changed:
                if self._execution is execution:
                    self.error = error
                    self._changed.notify_all()

    def begin(self) -> None:
        """Before an execution."""
        super().begin()
        self._fetched = 0

    def finish(self, steps: int) -> None:
        """Elements beyond the last step are the next execution's; those that no step looked at are taken as well."""
        if synthetic.instead_of("infeed"):
            return
        reader = self._queue.reader(self._replicas)
        unused = [value for key, value in sorted(self._values.items()) if key[0] >= steps]
        if unused:
            reader.give_back(unused)
        for _ in range(self._fetched, steps):
            reader.offer(self._replicas, lambda _: True)


class LiveOutfeed(Live):
    """An outfeed that is given one element after another."""

    def _call(self, cursor: int, replica: int, *values: np.ndarray) -> Sequence[np.ndarray]:
        with self._changed:
            self._refuse()
            self._values[cursor, replica] = [np.array(value) for value in values]
        return ()

    def finish(self, steps: int) -> None:
        """Elements of all steps are in the queue, at once."""
        if synthetic.instead_of("outfeed"):
            return
        rows = []
        for step in range(steps):
            lanes = [self._values[step, r] for r in range(self._replicas)]
            rows.append([np.stack(part) if self._replicas > 1 else part[0] for part in zip(*lanes, strict=True)])
        if rows:
            self._queue.writer.put([np.stack(part) for part in zip(*rows, strict=True)])
        self._queue.ran = True
