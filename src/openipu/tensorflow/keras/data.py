"""What `fit`, `evaluate` and `predict` are given, as a source of static micro-batches."""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from openipu.runtime import Gatherer, rows_for
from openipu.tensorflow.elements import Elements

_SUPPORTED = {
    tf.float16, tf.bfloat16, tf.float32, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint32, tf.uint64, tf.bool,
}  # fmt: skip


@attrs.frozen(eq=False)
class Source:
    """Micro-batches of static shape, in dataset order.

    Attributes:
      spec: the structure of one element, as tensor specs.
      length: elements it has, None when unknown, math.inf when it never ends.
    """

    spec: Any
    length: float | None

    @property
    def flat_spec(self) -> list[tf.TensorSpec]:
        """The tensor specs of one element."""
        return tf.nest.flatten(self.spec)

    @property
    def rows(self) -> int | None:
        """The size of tables that can hold all of the data on the device; None when it must be fed batch by batch."""
        return None

    def blocks(self, elements: int) -> Iterator[list[np.ndarray]]:
        """One pass over the data, `elements` at a time, stacked on a new first axis."""
        raise NotImplementedError


@attrs.frozen(eq=False)
class ArraySource(Source):
    """Arrays cut into batches; the arrays of one example share the first axis.

    Attributes:
      arrays: flat.
      batch_size: examples of one element.
      shuffle: whether to shuffle examples, or "batch"es, anew for every pass.
      ahead: how many blocks may wait to be taken; a shuffled block's memory is used again after a few more.
    """

    arrays: list[np.ndarray]
    batch_size: int
    shuffle: bool | str = False
    ahead: int = 3
    # Those that wait to be taken, one being filled, one being placed, one the device works on, one to spare.
    _gatherers: list[Gatherer] = attrs.field(
        init=False,
        default=attrs.Factory(lambda self: [Gatherer(a, self.ahead + 4) for a in self.arrays], takes_self=True),
    )

    @property
    def rows(self) -> int | None:
        return rows_for(self.arrays)

    def row_blocks(self, elements: int) -> Iterator[np.ndarray]:
        """One pass over the data like `blocks`, as the row numbers of the examples: [elements, batch size]."""
        order = self._order()
        order = (np.arange(len(self.arrays[0])) if order is None else order).astype(np.int32)
        for window in self._windows(elements):
            yield order[window].reshape(elements, self.batch_size)

    def _windows(self, elements: int) -> Iterator[slice]:
        examples = elements * self.batch_size
        for start in range(0, len(self.arrays[0]) - examples + 1, examples):
            yield slice(start, start + examples)

    def blocks(self, elements: int) -> Iterator[list[np.ndarray]]:
        order = self._order()
        for window in self._windows(elements):
            if order is None:
                rows = [np.ascontiguousarray(a[window]) for a in self.arrays]
            else:
                rows = [gather(order[window]) for gather in self._gatherers]
            yield [r.reshape(elements, self.batch_size, *r.shape[1:]) for r in rows]

    def _order(self) -> np.ndarray | None:
        count = len(self.arrays[0])
        if not self.shuffle:
            return None
        if self.shuffle == "batch":
            batches = np.arange(count).reshape(-1, self.batch_size)
            return np.random.permutation(batches).reshape(-1)
        return np.random.permutation(count)


@attrs.frozen(eq=False)
class DatasetSource(Source):
    """A tf.data dataset; its elements are the micro-batches."""

    dataset: tf.data.Dataset

    def blocks(self, elements: int) -> Iterator[list[np.ndarray]]:
        stacked = self.dataset.batch(elements, drop_remainder=True).prefetch(2)
        for element in Elements(stacked):
            yield [t.numpy() for t in element]


def from_arrays(structure: tuple, size_of: Callable[[int], int], shuffle: bool | str, ahead: int = 3) -> ArraySource:
    """A source from arrays or tensors, all of the same length, which must be a multiple of the batch size.

    Args:
      structure: x, y and weights, as far as there are any; lists of numbers, however nested, are arrays.
      size_of: the batch size for so many examples.
      shuffle, ahead: see `ArraySource`.
    """
    structure = tuple(_lists_as_arrays(part) for part in structure)
    arrays = [_array(leaf) for leaf in tf.nest.flatten(structure)]
    lengths = {len(a) if a.ndim else None for a in arrays}
    if len(lengths) != 1 or None in lengths:
        raise ValueError(
            "Data cardinality is ambiguous: all arrays must have the same number of examples. "
            f"Received shapes: {', '.join(str(a.shape) for a in arrays)}."
        )
    count = lengths.pop()
    if not count:
        raise ValueError("Expect x to be a non-empty array or dataset.")
    size = size_of(count)
    if count % size:
        near = [b for b in range(size, 0, -1) if count % b == 0][:1]
        raise ValueError(
            "The provided set of data has a partial batch, which could result in data being dropped. Either adjust "
            f"the `batch_size` of your model (currently set to {size}) or pad your dataset so that {count} examples "
            f"become a multiple of it (the next smaller divisor is {near[0]})."
        )
    specs = [tf.TensorSpec((size, *a.shape[1:]), tf.as_dtype(a.dtype)) for a in arrays]
    _check_specs(specs)
    return ArraySource(tf.nest.pack_sequence_as(structure, specs), count // size, arrays, size, shuffle, ahead)


def from_dataset(dataset: tf.data.Dataset) -> DatasetSource:
    """A source from a dataset, float64 cast to float32."""
    if any(s.dtype == tf.float64 for s in tf.nest.flatten(dataset.element_spec) if isinstance(s, tf.TensorSpec)):
        dataset = dataset.map(_narrow)
    for spec in tf.nest.flatten(dataset.element_spec):
        if not isinstance(spec, tf.TensorSpec):
            raise ValueError(
                "Datasets for the IPU hold dense tensors of static shape. "
                f"Received an element with the component {spec}. Convert it in the dataset, for example by to_tensor()."
            )
        if not spec.shape.is_fully_defined():
            raise ValueError(
                f"The provided set of data contains a shape {spec.shape} which is not fully defined. Executable code "
                "for the IPU needs all tensor shapes to be known. If using batch() make sure to set "
                "`drop_remainder=True`."
            )
    _check_specs(tf.nest.flatten(dataset.element_spec))
    count = int(dataset.cardinality())
    length = {tf.data.UNKNOWN_CARDINALITY: None, tf.data.INFINITE_CARDINALITY: math.inf}.get(count, count)
    return DatasetSource(dataset.element_spec, length, dataset)


def refuse_python_iterables(data: Any, kinds: Sequence[type]) -> None:
    """Refuse what yields data of unknown shape from Python: generators, sequences, iterators."""
    iterator = hasattr(data, "__next__") and not hasattr(data, "__array__")
    if inspect.isgenerator(data) or iterator or isinstance(data, tuple(kinds)):
        raise ValueError(
            f"The provided set of data is of type `{type(data)}` which is not compatible with the IPU's requirement "
            "to know the data shape ahead of time. Please use `tf.data.Dataset.from_generator()` with an "
            "`output_signature` of static shapes."
        )


def _check_specs(specs: Sequence[tf.TensorSpec]) -> None:
    for spec in specs:
        if spec.dtype not in _SUPPORTED:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                f"unsupported primitive type in Poplar: {spec.dtype.name} (a component of shape {spec.shape}). "
                f"Expected one of: {', '.join(sorted(t.name for t in _SUPPORTED))}. Cast it before it is fed.",
            )


def _lists_as_arrays(part: Any) -> Any:
    """Lists of numbers as one array; other lists hold the arrays of several inputs."""
    first = part
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    return np.asarray(part) if first is not part and isinstance(first, (int, float)) else part


def _array(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _narrow(*element: Any) -> Any:
    return tf.nest.map_structure(_single, element if len(element) != 1 else element[0])


def _single(tensor: tf.Tensor) -> tf.Tensor:
    return tf.cast(tensor, tf.float32) if tensor.dtype == tf.float64 else tensor
