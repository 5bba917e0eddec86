"""`IPUIterator`: a dataset's iterator whose elements are taken by programs on the device."""

import functools
from typing import Any

import tensorflow as tf

from openipu.tensorflow import boundary
from openipu.tensorflow.feeds.infeed import IPUInfeedQueue

_EAGER = (
    "Accessing dataset elements can not be accessed in eager mode when inside 'IPUStrategy'. Take them with "
    "next(iterator) inside the tf.function given to strategy.run, or make the iterator outside of the strategy's scope."
)


class IPUIterator:
    """An infeed queue that behaves like an iterator of TensorFlow in functions that are traced for the IPU.

    Args:
      dataset: what to iterate over.
      infeed_spec, element_spec: instead of it, a queue that exists already and the types of its elements.
      **kwargs: of `IPUInfeedQueue`.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset | None = None,
        infeed_spec: Any = None,
        element_spec: Any = None,
        **kwargs: Any,
    ) -> None:
        if dataset is None and (infeed_spec is None or element_spec is None):
            raise ValueError("Either `dataset` or both `infeed_spec` and `element_spec` need to be provided.")
        if dataset is not None and (infeed_spec is not None or element_spec is not None):
            raise ValueError("When `dataset` is provided, `infeed_spec` and `element_spec` must not be.")
        if dataset is None:
            self._infeed_queue: Any = infeed_spec
        else:
            self._infeed_queue = IPUInfeedQueue(dataset, **kwargs)
            self._initialize()

    @property
    def element_spec(self) -> Any:
        """The types of an element."""
        return self._infeed_queue.element_spec

    @property
    def infeed_spec(self) -> IPUInfeedQueue:
        """The queue that the elements come from."""
        return self._infeed_queue

    def __iter__(self) -> "IPUIterator":
        if not tf.executing_eagerly():
            raise NotImplementedError(
                "A loop over an iterator of the IPU has no known end. Write `for _ in tf.range(n): next(iterator)`."
            )
        return self

    def __next__(self) -> Any:
        if tf.executing_eagerly():
            raise RuntimeError(_EAGER)
        return self._infeed_queue._dequeue()

    def next(self) -> Any:
        """The next element."""
        return self.__next__()

    def get_next(self) -> Any:
        """The next element."""
        return self.__next__()

    def get_next_as_optional(self) -> Any:
        """Refused: programs on the IPU cannot ask whether there is another element."""
        raise NotImplementedError("get_next_as_optional is not supported by iterators of the IPU.")

    def _gather_saveables_for_checkpoint(self) -> Any:
        raise NotImplementedError("Iterators of the IPU cannot be saved in checkpoints.")

    _serialize_to_tensors = _restore_from_tensors = _gather_saveables_for_checkpoint

    def _initialize(self) -> None:
        with tf.init_scope():
            self._infeed_queue.initializer  # noqa: B018  (reading it starts the dataset)


class IPUOwnedIterator(IPUIterator):
    """What `iter(dataset)` gives in the scope of a strategy; its queue ends with it."""


@functools.cache
def install() -> None:
    """Make `iter(dataset)` in the scope of a strategy give iterators of the IPU.

    Keras' own loop, of a model that was made outside of the scope, goes on with its own.
    """

    def make(dataset: tf.data.Dataset, caller: str) -> IPUOwnedIterator | None:
        owned = getattr(tf.distribute.get_strategy(), "owns_iterators", False) and tf.executing_eagerly()
        theirs = caller.startswith(("keras.", "tf_keras.", "tensorflow."))
        return IPUOwnedIterator(dataset) if owned and not theirs else None

    boundary.replace_iterators(make)
