"""Collectives between instances, on the host: values of TensorFlow, exchanged by name."""

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from openipu import instances
from openipu.errors import InstanceError

_TYPES = (tf.float16, tf.float32, tf.bfloat16, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32,
          tf.uint64)  # fmt: skip

# The name of what is exchanged eagerly, or under a name of the caller's: then the order tells what belongs together.
_DEFAULT = "Default"

# The last operation of a graph that waits for the initial value of a variable.
_initial_values: "weakref.WeakKeyDictionary[tf.Graph, list[tf.Operation]]" = weakref.WeakKeyDictionary()


def allgather(value: Any, tensor_name: str | None = None) -> tf.Tensor:
    """The values of all instances, stacked along a new first axis."""
    tensor = _checked(value, "allgather")
    name = _name("PopDistAllGather", tensor, tensor_name)
    return _run(lambda array: instances.gather(array, name), tensor, None)


def allreduce(value: Any, reduce_op: tf.distribute.ReduceOp, tensor_name: str | None = None) -> tf.Tensor:
    """The sum or mean over all instances."""
    if reduce_op not in (tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN):
        raise ValueError(f"reduce_op must be tf.distribute.ReduceOp.SUM or MEAN. Received: reduce_op={reduce_op!r}.")
    tensor = _checked(value, "allreduce")
    name = _name("PopDistAllReduce", tensor, tensor_name)

    def reduce(array: np.ndarray) -> np.ndarray:
        everyone = instances.gather(array, name)
        total = everyone.sum(0, dtype=array.dtype)
        if reduce_op == tf.distribute.ReduceOp.SUM:
            return total
        # In the type of the values: a mean of integers is cut off.
        count = array.dtype.type(len(everyone))
        return total // count if np.issubdtype(array.dtype, np.integer) else total / count

    return _run(reduce, tensor, tensor.shape)


def broadcast(value: Any, root_rank: int = 0, tensor_name: str | None = None) -> tf.Tensor:
    """The value of instance 0; as in the original, another root is not asked."""
    tensor = _checked(value, "broadcast", tf.bool)
    name = _name("PopDistBroadcast", tensor, tensor_name)
    return _run(lambda array: instances.broadcast(array, instances.current()[0], name), tensor, tensor.shape)


def initial_value(value: Any) -> tf.Tensor:
    """What a variable of a graph begins with on all instances: the value of the first of them."""
    tensor, graph = tf.convert_to_tensor(value), tf.compat.v1.get_default_graph()
    name = f"the initial value {tensor.name}"
    # One after the other: initial values that wait for other instances' occupy the threads of a session.
    with tf.control_dependencies(_initial_values.get(graph)), tf.device("/device:CPU:0"):
        made = _run(lambda array: instances.broadcast(array, instances.current()[0], name), tensor, tensor.shape)
    _initial_values[graph] = [made.op]
    return made


def _checked(value: Any, operation: str, *more: tf.DType) -> tf.Tensor:
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype not in (*_TYPES, *more):
        named = ", ".join(dtype.name for dtype in (*_TYPES, *more))
        raise TypeError(f"{operation} takes values of: {named}. Received: {tensor.dtype.name}. Cast it first.")
    return tensor


def _name(operation: str, tensor: tf.Tensor, given: str | None) -> str:
    if given is not None or tf.executing_eagerly():
        return _DEFAULT
    return f"{operation}_{tensor.name}"


def _run(function: Callable[[np.ndarray], np.ndarray], tensor: tf.Tensor, shape: tf.TensorShape | None) -> tf.Tensor:
    instances.join()

    def call(given: tf.Tensor) -> np.ndarray:
        try:
            return function(given.numpy())
        except InstanceError as error:
            raise tf.errors.UnknownError(None, None, str(error)) from None

    if tf.executing_eagerly():
        return tf.convert_to_tensor(call(tensor))
    made = tf.py_function(call, [tensor], tensor.dtype)
    return made if shape is None else tf.ensure_shape(made, shape)
