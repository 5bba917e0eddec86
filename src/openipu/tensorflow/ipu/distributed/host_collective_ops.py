"""Collectives between processes, on the host; a program is one process here."""

from typing import Any

import tensorflow as tf

__all__ = ["allgather", "allreduce", "broadcast"]


def allgather(value: Any, tensor_name: str | None = None) -> tf.Tensor:
    """The values of all processes, stacked along a new first axis."""
    return tf.expand_dims(tf.convert_to_tensor(value), 0, name=tensor_name)


def allreduce(value: Any, reduce_op: tf.distribute.ReduceOp, tensor_name: str | None = None) -> tf.Tensor:
    """The sum or mean over all processes."""
    if reduce_op not in (tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN):
        raise ValueError(f"reduce_op must be tf.distribute.ReduceOp.SUM or MEAN. Received: reduce_op={reduce_op!r}.")
    return tf.identity(value, name=tensor_name)


def broadcast(value: Any, root_rank: int = 0, tensor_name: str | None = None) -> tf.Tensor:
    """The value of the first process."""
    return tf.identity(value, name=tensor_name)
