"""`IPUOutfeedQueue`: where programs on the device leave values for the host to read."""

import enum
import logging
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from openipu.tensorflow.configuration import devices, synthetic
from openipu.tensorflow.feeds import calls, queues
from openipu.tensorflow.feeds.infeed import _on_host, _ordinal
from openipu.tensorflow.feeds.reader import sizes
from openipu.tensorflow.feeds.writer import Writer

log = logging.getLogger("openipu.tensorflow")


class IPUOutfeedMode(enum.Enum):
    """Which of the enqueued values the host receives."""

    ALL = "all"
    LAST = "get_last"


class IPUOutfeedQueue:
    """Values that a program enqueues, read by the host in order.

    Args:
      outfeed_mode: all values, or the last one only.
      device_ordinal: of the device; by default that of the current strategy, or 0.
      buffer_depth: checked, and otherwise ignored.
      optimise_latency: ignored.
      feed_name, replication_factor, io_batch_size: of older programs, ignored. Those gave the name first.
    """

    def __init__(
        self,
        outfeed_mode: IPUOutfeedMode | str | None = None,
        device_ordinal: int | IPUOutfeedMode | None = None,
        buffer_depth: int = 3,
        optimise_latency: bool = False,
        *,
        feed_name: str | None = None,
        replication_factor: int | None = None,
        io_batch_size: int = 1,
    ) -> None:
        if not tf.executing_eagerly() and isinstance(outfeed_mode, str):
            outfeed_mode = None
        if not tf.executing_eagerly() and isinstance(device_ordinal, IPUOutfeedMode):
            outfeed_mode, device_ordinal = device_ordinal, None
        mode = IPUOutfeedMode.ALL if outfeed_mode is None else outfeed_mode
        if not isinstance(mode, IPUOutfeedMode):
            raise ValueError(
                "Expected `outfeed_mode` value to be of `ipu_outfeed_queue.IPUOutfeedMode` type, but is "
                f"{outfeed_mode!r}."
            )
        if buffer_depth <= 0:
            raise ValueError("Outfeed buffer depth cannot be less than 1")
        self._device_ordinal = _ordinal(device_ordinal)
        self.outfeed_mode = mode
        self.last = mode is IPUOutfeedMode.LAST
        self.flat_specs: list[tf.TensorSpec] = []
        self.ran = False
        self._warned = False
        self._structure: Any = None
        self._enqueued = False
        self._replicas: int | None = None
        self._thread = threading.get_ident()
        self.name = queues.register(self, "outfeed")
        self.writer = Writer(f"The outfeed queue {self.name!r}", self.last)
        self.cursor: Any = calls.cursor(self.name)
        self.cursor._openipu_queue = weakref.ref(self)

    @property
    def enqueued(self) -> bool:
        """Whether a program gives values to this queue."""
        return self._enqueued

    def enqueue(self, tensors: Any) -> tf.Operation:
        """Give a structure of tensors to the host, in a function that is being traced for the IPU."""
        return calls.give(self.name, self.cursor, self.declare(tensors))

    def declare(self, tensors: Any) -> list[tf.Tensor]:
        """What a program gives to this queue, however it does that; returns the tensors one by one."""
        values = tf.nest.map_structure(_tensor, tensors)
        flat = tf.nest.flatten(values)
        specs = [tf.TensorSpec(v.shape, v.dtype) for v in flat]
        for spec in specs:
            if not spec.shape.is_fully_defined():
                raise ValueError(f"Values of an outfeed must have static shapes. Received: shape {spec.shape}.")
        if self._enqueued and specs != self.flat_specs:
            raise ValueError(
                f"The values of an outfeed queue must have the same shapes in all programs. Received: {specs} after "
                f"{self.flat_specs}. Use a queue for each program."
            )
        self._structure, self.flat_specs, self._enqueued = values, specs, True
        return flat

    def dequeue(self, wait_for_completion: bool = False) -> Any:
        """What programs enqueued since the last time: [values, replicas, ...], the replicas only if there are several.

        Args:
          wait_for_completion: values are here when the execution is over, so there is nothing to wait for.
        """
        if not self._enqueued:
            if tf.executing_eagerly() and threading.get_ident() != self._thread:
                return []
            raise ValueError("Trying to dequeue an outfeed which has not been enqueued.")
        if tf.executing_eagerly():
            values = [tf.convert_to_tensor(v) for v in self._read()]
        else:
            values = tf.py_function(self._read, [], [s.dtype for s in self.flat_specs], name="outfeed_dequeue")
            for value, spec in zip(values, self.flat_specs, strict=True):
                value.set_shape(self._shape_on_host(spec))
        return tf.nest.pack_sequence_as(self._structure, values)

    @property
    def deleter(self) -> Any:
        """Forgets the values: now in eager mode, else when the returned operation is run."""
        if tf.executing_eagerly():
            return self.writer.clear()
        return _on_host(self.writer.clear, "outfeed_deleter")

    def __iter__(self) -> Iterator[Any]:
        if not tf.executing_eagerly():
            raise RuntimeError("IPUOutfeedQueue can only be iterated over in eager mode.")
        if self.last:
            raise RuntimeError(
                "IPUOutfeedQueue can only be iterated over if the `outfeed_mode` is set to 'IPUOutfeedMode.ALL'."
            )
        return IPUOutfeedQueueIterator(self)

    def claim(self, replicas: int) -> None:
        """A program with so many replicas uses this queue."""
        if self._replicas not in (None, replicas):
            raise ValueError(
                "An outfeed queue cannot be shared by programs with different numbers of replicas. Received: a "
                f"program with {replicas} after one with {self._replicas}. Make a second IPUOutfeedQueue."
            )
        self._replicas = replicas

    def _read(self) -> list[np.ndarray]:
        found = self.writer.take()
        if found is None and devices.precompiles(self._device_ordinal):
            found = [np.zeros((1, *self._lane, *sizes(s)), s.dtype.as_numpy_dtype) for s in self.flat_specs]
        if self.last:
            if found is None:
                raise tf.errors.FailedPreconditionError(
                    None,
                    None,
                    "Trying to get the last value from an outfeed queue before it was executed. Run the program that "
                    "enqueues to it first.",
                )
            return [part[-1] for part in found]
        if found is None:
            if not self.ran and not self._warned and not synthetic.instead_of("outfeed"):
                self._warned = True  # Programs ask again and again.
                log.warning("The outfeed queue %r has not been executed yet: there is nothing to dequeue.", self.name)
            return [np.zeros((0, *self._lane, *sizes(s)), s.dtype.as_numpy_dtype) for s in self.flat_specs]
        return found

    @property
    def _lane(self) -> tuple[int, ...]:
        return () if self._replicas in (None, 1) else (self._replicas,)

    def _shape_on_host(self, spec: tf.TensorSpec) -> list[int | None] | None:
        """What is known before the program is compiled; replicas are not."""
        if self._replicas is None:
            return None
        return [*([] if self.last else [None]), *self._lane, *sizes(spec)]


class IPUOutfeedQueueIterator:
    """Iterates over the values of an outfeed queue, one by one, until it is momentarily empty."""

    def __init__(self, outfeed_queue: IPUOutfeedQueue) -> None:
        self._queue = outfeed_queue

    def __iter__(self) -> "IPUOutfeedQueueIterator":
        return self

    def __next__(self) -> Any:
        value = self._queue.writer.take_one()
        if value is None:
            raise StopIteration
        return tf.nest.pack_sequence_as(self._queue._structure, [tf.convert_to_tensor(part) for part in value])


class ScopedIPUOutfeedQueue(IPUOutfeedQueue):
    """An outfeed queue whose values end with the object.

    Args:
      outfeed_mode, device_ordinal: as of `IPUOutfeedQueue`.
    """

    def __init__(self, outfeed_mode: IPUOutfeedMode | None = None, device_ordinal: int | None = None) -> None:
        if not tf.executing_eagerly():
            raise RuntimeError("ScopedIPUOutfeedQueue can only be created in eager mode")
        super().__init__(outfeed_mode, device_ordinal)


def _tensor(value: Any) -> tf.Tensor:
    if value is None:
        raise ValueError("Expected tensors to enqueue. Received: None.")
    return tf.convert_to_tensor(value)
