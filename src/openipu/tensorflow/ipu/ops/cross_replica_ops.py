"""Sums and means over replicas."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.ops import collectives

__all__ = ["assume_equal_across_replicas", "cross_replica_mean", "cross_replica_sum"]


def cross_replica_sum(x: Any, replica_group_size: int | None = None, name: str | None = None) -> tf.Tensor:
    """The sum of `x` over replicas, on every one of them.

    Args:
      x: one tensor on each replica.
      replica_group_size: sum over groups of this many consecutive replicas; over all of them by default.
      name: of the operation.
    """
    with tf.name_scope(name or "cross_replica_sum"):
        return collectives.cross_replica_sum(tf.convert_to_tensor(x), _checked(replica_group_size))


def cross_replica_mean(x: Any, replica_group_size: int | None = None, name: str | None = None) -> tf.Tensor:
    """The mean of `x` over replicas, on every one of them; large float16 values do not overflow on the way.

    Args:
      x: one tensor on each replica.
      replica_group_size: take the mean over groups of this many consecutive replicas; over all of them by default.
      name: of the operation.
    """
    with tf.name_scope(name or "cross_replica_mean"):
        return collectives.cross_replica_mean(tf.convert_to_tensor(x), _checked(replica_group_size))


def assume_equal_across_replicas(tensors: Any, inplace: bool = False) -> Any:
    """The tensors as they are; their being equal on all replicas is the caller's promise, needed by no pass here."""
    return tf.nest.map_structure(tf.identity, tensors)


def _checked(size: int | None) -> int | None:
    if size is not None and (not isinstance(size, int) or size < 1):
        raise ValueError(f"replica_group_size must be a positive integer. Received: replica_group_size={size!r}.")
    return size
