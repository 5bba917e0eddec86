"""`IPUInfeedQueue`: a dataset that programs on the device take their elements from."""

import weakref
from typing import Any

import tensorflow as tf

from openipu.tensorflow import boundary
from openipu.tensorflow.elements import Elements
from openipu.tensorflow.feeds import calls, queues
from openipu.tensorflow.feeds.reader import Reader
from openipu.tensorflow.feeds.recurring import RecurringReader
from openipu.tensorflow.recurrence import recurrence

_MOST_PREFETCHED = 255


class IPUInfeedQueue:
    """Elements of a dataset, taken in order by the programs that dequeue them, one element for each replica.

    Args:
      dataset: elements with static shapes.
      device_ordinal: of the device; by default that of the current strategy, or 0.
      prefetch_depth: checked, and otherwise ignored: all elements of the next execution are fetched ahead.
      optimise_latency: ignored.
      feed_name, replication_factor, data_to_prefetch: of older programs, ignored. Those gave the name second.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        device_ordinal: int | str | None = None,
        prefetch_depth: int | None = None,
        optimise_latency: bool = False,
        *,
        feed_name: str | None = None,
        replication_factor: int | None = None,
        data_to_prefetch: int | None = None,
    ) -> None:
        if isinstance(device_ordinal, str) and not tf.executing_eagerly():
            device_ordinal = None
        self._device_ordinal = _ordinal(device_ordinal)
        _check_depth(prefetch_depth)
        self._structure = dataset.element_spec
        self.flat_specs: list[tf.TensorSpec] = tf.nest.flatten(self._structure)
        for spec in self.flat_specs:
            _check_spec(spec)
        self.dataset = dataset
        self._reader: Reader | None = None
        self._replicas: int | None = None
        self._initializer_read = False
        self._dequeued = False
        self.name = queues.register(self, "infeed")
        self.cursor: Any = calls.cursor(self.name)
        self.cursor._openipu_queue = weakref.ref(self)

    @property
    def dequeued(self) -> bool:
        """Whether a program takes elements of this queue."""
        return self._dequeued

    @property
    def number_of_tuple_elements(self) -> int:
        """How many arguments an element is for the body of a loop."""
        return len(self._structure) if isinstance(self._structure, tuple) else 1

    @property
    def element_spec(self) -> Any:
        """The types of an element."""
        return self._structure

    @property
    def initializer(self) -> Any:
        """Starts the dataset from its beginning: now in eager mode, else when the returned operation is run."""
        if tf.executing_eagerly():
            self._start()
            return None
        if self._initializer_read:
            raise ValueError("The IPUInfeedQueue `initializer` function can only be accessed once.")
        self._initializer_read = True
        # A graph's dataset exists only while a session runs the graph, so it is handed over as a message.
        message = boundary.dataset_message(self.dataset)
        return _on_host(self._start_from, "infeed_initializer", message)

    @property
    def deleter(self) -> Any:
        """Forgets the dataset's position: now in eager mode, else when the returned operation is run."""
        if tf.executing_eagerly():
            return self._delete()
        return _on_host(self._delete, "infeed_deleter")

    def get_next(self) -> None:
        """Obsolete."""
        raise ValueError("IPUInfeedQueue.get_next is obsolete: pass the queue to ipu.loops.repeat or to a pipeline.")

    def _dequeue(self) -> Any:
        """The next element, in a function that is being traced for the IPU."""
        self._dequeued = True
        parts = calls.take(self.name, self.cursor, self.flat_specs)
        return tf.nest.pack_sequence_as(self._structure, parts)

    def claim(self, replicas: int) -> None:
        """A program with so many replicas uses this queue."""
        if self._replicas not in (None, replicas):
            raise ValueError(
                "An infeed queue cannot be shared by programs with different numbers of replicas. Received: a "
                f"program with {replicas} after one with {self._replicas}. Make a second IPUInfeedQueue of the dataset."
            )
        self._replicas = replicas

    def reader(self, replicas: int) -> Reader:
        """Where the elements of the next execution come from."""
        if self._reader is None:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                "Trying to access an infeed dataset iterator which has not been created. Did you initialize the "
                f"infeed_queue '{self.name}' ?",
            )
        return self._reader

    def _start_from(self, message: tf.Tensor) -> None:
        self._start(boundary.dataset_from(message, self._structure))

    def _start(self, dataset: tf.data.Dataset | None = None) -> None:
        if self._reader is not None:
            self._reader.close()
        elements = Elements(self.dataset if dataset is None else dataset)
        name = f"The infeed queue {self.name!r}"
        found = recurrence(self.dataset)
        if found is not None and RecurringReader.can_hold(found, self.flat_specs):
            self._reader = RecurringReader(elements, self.flat_specs, name, found)
        else:
            self._reader = Reader(elements, self.flat_specs, name)

    def _delete(self) -> None:
        if self._reader is None:
            raise tf.errors.NotFoundError(None, None, f"The infeed queue '{self.name}' does not exist on the device.")
        self._reader.close()
        self._reader = None


def _on_host(function: Any, name: str, *given: tf.Tensor) -> tf.Operation:
    """An operation of a graph that calls a Python function."""
    called = tf.py_function(function, list(given), [], name=name)
    return called if isinstance(called, tf.Operation) else called.op


def _ordinal(given: Any) -> int:
    if given is None:
        return getattr(tf.distribute.get_strategy(), "device_ordinal", 0)
    if not isinstance(given, int):
        raise ValueError("Device ordinal must be an integer")
    if given < 0:
        raise ValueError("Device ordinal must be >= 0")
    return given


def _check_depth(depth: int | None) -> None:
    if depth is not None and depth < 1:
        raise ValueError(f"prefetch_depth must be greater than zero, but it is {depth}")
    if depth is not None and depth > _MOST_PREFETCHED:
        raise ValueError(f"prefetch_depth must be less than {_MOST_PREFETCHED + 1}, but it is {depth}")


def _check_spec(spec: Any) -> None:
    if not isinstance(spec, tf.TensorSpec):
        raise ValueError(f"Elements of an infeed queue are tensors of static shape. Received: {spec}.")
    if not spec.shape.is_fully_defined():
        raise ValueError(
            f"Output shape {spec.shape} is not fully defined. If using tf.Dataset.batch, set `drop_remainder=True`."
        )
    if 0 in spec.shape:
        raise ValueError(f"Elements of an infeed queue must not be empty. Received: shape {spec.shape}.")
