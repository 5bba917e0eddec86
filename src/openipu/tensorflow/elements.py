"""The elements of a dataset, for any thread; nobody waits for the end of one that is left."""

import _thread
import atexit
import ctypes
import sys
import weakref
from typing import Any

import tensorflow as tf

from openipu.tensorflow.boundary import eager_mode, flat_iterator

_alive: "weakref.WeakSet[Elements]" = weakref.WeakSet()


class Elements:
    """The parts of each element, without their structure, asked for in any thread: those of TensorFlow 1 are not eager.

    Not a generator, which would be at its end once a signal had come while it was asked.

    TensorFlow fetches ahead, in threads that may be in the user's own code. Who deletes its iterator waits for that
    code, which may sleep: so a thread does it.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._held: list[Any] = []
        with eager_mode():
            self._held.append(flat_iterator(dataset))
        _alive.add(self)

    def __iter__(self) -> "Elements":
        return self

    def __next__(self) -> list[tf.Tensor]:
        with eager_mode():
            try:
                return self._held[0]()
            except tf.errors.OutOfRangeError:
                raise StopIteration from None

    def __del__(self) -> None:
        if not sys.is_finalizing():
            _thread.start_new_thread(self._held.clear, ())

    def keep_for_ever(self) -> None:
        """At the interpreter's end: the user's code does not go on then, and who waits for it waits for ever."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._held))


@atexit.register
def _keep_all() -> None:
    for elements in list(_alive):
        elements.keep_for_ever()
