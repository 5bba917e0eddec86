"""Exchange of slices between replicas, and gathering from all of them."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.ops import collectives

__all__ = ["all_gather", "all_to_all"]


def all_to_all(
    x: Any, split_dimension: int, concat_dimension: int, replication_factor: int, name: str | None = None
) -> tf.Tensor:
    """Sends slice j of `x` to replica j and puts together what arrives, in replica order.

    Args:
      x: one tensor on each replica.
      split_dimension: the axis that is cut into one slice for each replica.
      concat_dimension: the axis along which received slices are put together.
      replication_factor: the number of replicas.
      name: of the operation.
    """
    x = tf.convert_to_tensor(x)
    axes = {"split_dimension": split_dimension, "concat_dimension": concat_dimension}
    for argument, axis in axes.items():
        if not -x.shape.rank <= axis < x.shape.rank:
            raise ValueError(f"{argument} must be an axis of x, of rank {x.shape.rank}. Received: {argument}={axis}.")
    split, concat = (axis % x.shape.rank for axis in axes.values())
    if x.shape[split] is not None and x.shape[split] % replication_factor:
        raise ValueError(
            f"The size of x along split_dimension must be a multiple of replication_factor. Received: "
            f"x.shape={x.shape}, split_dimension={split_dimension}, replication_factor={replication_factor}."
        )
    with tf.name_scope(name or "all_to_all"):
        return collectives.all_to_all(x, split, concat, replication_factor)


def all_gather(x: Any, replication_factor: int, name: str | None = None) -> Any:
    """The values of all replicas, stacked along a new first axis in replica order.

    Args:
      x: a tensor, or a list of tensors.
      replication_factor: the number of replicas.
      name: of the operation.

    Returns:
      One tensor, or a list of them if `x` is a list of several.
    """
    with tf.name_scope(name or "all_gather"):
        given = x if isinstance(x, list | tuple) else [x]
        gathered = [collectives.all_gather(tf.convert_to_tensor(value), replication_factor) for value in given]
    return gathered if len(gathered) > 1 else gathered[0]
