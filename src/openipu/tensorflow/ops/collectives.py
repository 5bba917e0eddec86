"""Communication between replicas inside functions that are being captured, as TensorFlow operations."""

import contextvars
import math
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from openipu.contexts import during
from openipu.tensorflow.ops.emit import emit

_tracing: contextvars.ContextVar[bool] = contextvars.ContextVar("openipu_tracing", default=False)


def tracing() -> bool:
    """Whether the function being traced reduces over replicas itself."""
    return _tracing.get()


def reducing() -> AbstractContextManager[bool]:
    """Trace a function whose reductions over replicas are real; elsewhere the compiler reduces, or nothing does."""
    return during(_tracing, True)


def cross_replica_sum(value: Any, group_size: int | None = None) -> Any:
    """The sum over all replicas, or over groups of consecutive ones, on every member; its gradient is a sum again."""

    @tf.custom_gradient
    def summed(tensor: tf.Tensor) -> Any:
        result = emit("cross_replica_sum", [tensor], tensor.shape, tensor.dtype, group_size=group_size)
        return result, lambda gradient: cross_replica_sum(gradient, group_size)

    return tf.nest.map_structure(lambda v: summed(tf.convert_to_tensor(v)), value)


def cross_replica_mean(value: Any, group_size: int | None = None) -> Any:
    """The mean over all replicas, or over groups of consecutive ones, on every member; it has no gradient."""

    def mean(tensor: tf.Tensor) -> tf.Tensor:
        return emit("cross_replica_mean", [tensor], tensor.shape, tensor.dtype, group_size=group_size)

    return tf.nest.map_structure(lambda v: mean(tf.convert_to_tensor(v)), value)


def all_to_all(tensor: tf.Tensor, split: int, concat: int, replicas: int) -> tf.Tensor:
    """Slice j along the axis `split` goes to replica j; what arrives is put together along `concat`."""

    @tf.custom_gradient
    def exchanged(tensor: tf.Tensor) -> Any:
        sizes = [_known(size) for size in tensor.shape]
        sizes[split] /= replicas
        sizes[concat] *= replicas
        shape = [_size(size) for size in sizes]
        result = emit("all_to_all", [tensor], shape, tensor.dtype, split=split, concat=concat, replicas=replicas)
        return result, lambda gradient: all_to_all(gradient, concat, split, replicas)

    return exchanged(tensor)


def all_gather(tensor: tf.Tensor, replicas: int) -> tf.Tensor:
    """The values of all replicas, stacked along a new first axis in replica order."""
    return emit("all_gather", [tensor], [replicas, *tensor.shape], tensor.dtype, replicas=replicas)


def reduce_scatter(tensor: tf.Tensor, reduction: str, replicas: int) -> tf.Tensor:
    """A vector reduced over replicas; every replica keeps its part, the last ones padded with zeros."""
    length = _size(-(-_known(tensor.shape[0]) // replicas))
    return emit("reduce_scatter", [tensor], [length], tensor.dtype, reduction=reduction, replicas=replicas)


def replication_index() -> tf.Tensor:
    """The number of the replica this runs on."""
    return emit("replication_index", [], [], tf.int32)


def _known(size: int | None) -> float:
    """A size to calculate with, NaN where it is unknown."""
    return math.nan if size is None else size


def _size(value: float) -> int | None:
    return None if math.isnan(value) else int(value)
