"""Reduction over replicas that leaves a part of the result on each of them."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.ipu import reductions
from openipu.tensorflow.ops import collectives

__all__ = ["reduce_scatter"]


def reduce_scatter(x: Any, replication_factor: int, op: str = "COLLECTIVE_OP_ADD", name: str | None = None) -> Any:
    """Reduces vectors over replicas; replica i keeps part i of the result.

    Args:
      x: a vector of n elements, or a list of vectors.
      replication_factor: the number of replicas R.
      op: the reduction, from COLLECTIVE_OP_ADD, _MUL, _MIN, _MAX, _LOGICAL_AND, _LOGICAL_OR, _SQUARE_ADD, _MEAN, and
        _LOCAL, which keeps the replica's own values.
      name: of the operation.

    Returns:
      A vector of ceil(n / R) elements with zeros at its end where n is not a multiple of R; a list if `x` is one of
      several.
    """
    reduction = reductions.parse(op)
    with tf.name_scope(name or "reduce_scatter"):
        given = [tf.convert_to_tensor(value) for value in (x if isinstance(x, list | tuple) else [x])]
        for value in given:
            if value.shape.rank != 1:
                raise ValueError(f"x must be of rank 1. Received: a tensor of shape {value.shape}. Flatten it first.")
        parts = [collectives.reduce_scatter(value, reduction, replication_factor) for value in given]
    return parts if len(parts) > 1 else parts[0]
