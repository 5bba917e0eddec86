"""Datasets that repeat what they compute from arrays alone: after how many elements the same ones come again."""

import math
from collections.abc import Callable
from typing import Any

import attrs
import tensorflow as tf

from openipu.tensorflow.boundary import dataset_parts


@attrs.frozen
class Recurrence:
    """Elements that come again.

    Attributes:
      period: element i + period is element i.
      total: elements in all; math.inf when it never ends. No more than `period` where nothing comes again.
    """

    period: int
    total: float

    @classmethod
    def of(cls, period: int, total: float) -> "Recurrence":
        """A period is never longer than all there is."""
        return cls(int(min(period, total)), total)

    def batched(self, size: int, drop: bool) -> "Recurrence | None":
        """Of batches."""
        if self.total <= self.period:
            count = math.floor(self.total / size) if drop else math.ceil(self.total / size)
            return Recurrence(count, count)
        if not drop:
            return None
        total = self.total if math.isinf(self.total) else self.total // size
        return Recurrence.of(math.lcm(self.period, size) // size, total)

    def repeated(self, count: int) -> "Recurrence":
        """Of all of it, again and again."""
        if count == 0:
            return Recurrence(0, 0)
        if math.isinf(self.total) or not self.total:
            return self
        whole = int(self.total)
        period = self.period if self.total % self.period == 0 else whole
        return Recurrence.of(period, math.inf if count < 0 else whole * count)


def recurrence(dataset: tf.data.Dataset) -> Recurrence | None:
    """When the elements of a dataset come again; None where it may depend on anything but arrays in memory."""
    _, _, given = dataset_parts(dataset)
    # Those of all datasets below are among them.
    if given["options_attr"].deterministic is False:
        return None
    return _of(dataset)


def _of(dataset: tf.data.Dataset) -> Recurrence | None:
    kind, inputs, given = dataset_parts(dataset)
    if kind not in _RULES or given.get("deterministic") in ("false", False):
        return None
    below = [_of(each) for each in inputs]
    known = [each for each in below if each is not None]
    try:
        return _RULES[kind](*known, **given) if len(known) == len(below) else None
    except _UnknownError:
        return None


class _UnknownError(Exception):
    """A number that only the execution tells."""


def _number(tensor: Any) -> int:
    value = tf.get_static_value(tensor)
    if value is None:
        raise _UnknownError
    return int(value)


def _slices(*, tensors: list[tf.Tensor], **_: Any) -> Recurrence:
    shape = tensors[0].shape
    count = shape.as_list()[0] if shape.rank else None
    if count is None:
        raise _UnknownError
    return Recurrence(count, count)


def _range(*, start: Any, stop: Any, step: Any, **_: Any) -> Recurrence:
    count = len(range(_number(start), _number(stop), _number(step)))
    return Recurrence(count, count)


def _batch(below: Recurrence, *, batch_size: Any, drop_remainder: Any, **_: Any) -> Recurrence | None:
    return below.batched(_number(batch_size), bool(_number(drop_remainder)))


def _take(below: Recurrence, *, count: Any, **_: Any) -> Recurrence:
    most = _number(count)
    return below if most < 0 else Recurrence.of(below.period, min(below.total, most))


def _skip(below: Recurrence, *, count: Any, **_: Any) -> Recurrence:
    less = _number(count)
    return Recurrence.of(below.period, 0 if less < 0 else max(below.total - less, 0))


def _cache(below: Recurrence, *, filename: Any, **_: Any) -> Recurrence | None:
    # A file may be older than the program.
    return below if tf.get_static_value(filename) == b"" else None


def _map(below: Recurrence, *, map_func: Any, **_: Any) -> Recurrence | None:
    graph = getattr(map_func.function, "graph", None)
    pure = graph is not None and all(_is_pure(op) for op in graph.get_operations())
    return below if pure else None


def _is_pure(operation: tf.Operation) -> bool:
    """Whether an operation, or the function it calls, only computes with numbers."""
    holders = (tf.resource, tf.variant)
    held = any(tensor.dtype in holders for tensor in (*operation.inputs, *operation.outputs))
    return not (operation.op_def.is_stateful or operation.type.startswith("PyFunc") or held)


def _zip(*below: Recurrence, **_: Any) -> Recurrence:
    return Recurrence.of(math.lcm(*(each.period for each in below)), min(each.total for each in below))


# What each class of TensorFlow's does to the elements of its inputs.
_RULES: dict[str, Callable[..., Recurrence | None]] = {
    "TensorDataset": lambda **_: Recurrence(1, 1),
    "TensorSliceDataset": _slices,
    "RangeDataset": _range,
    "BatchDataset": _batch,
    "ParallelBatchDataset": _batch,
    "RepeatDataset": lambda below, *, count, **_: below.repeated(_number(count)),
    "TakeDataset": _take,
    "SkipDataset": _skip,
    "PrefetchDataset": lambda below, **_: below,
    "OptionsDataset": lambda below, **_: below,
    "CacheDataset": _cache,
    "MapDataset": _map,
    "ParallelMapDataset": _map,
    "ZipDataset": _zip,
}
