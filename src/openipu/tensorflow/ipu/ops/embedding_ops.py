"""Lookups in tables of embeddings, on the device and on the host."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.ops.embedding import lookup
from openipu.tensorflow.ops.host_embedding import (
    HostEmbedding,
    HostEmbeddingOptimizerSpec,
    HostEmbeddingSGDGAOptimizerSpec,
    create_host_embedding,
)

__all__ = [
    "HostEmbedding",
    "HostEmbeddingOptimizerSpec",
    "HostEmbeddingSGDGAOptimizerSpec",
    "create_host_embedding",
    "embedding_lookup",
]


def embedding_lookup(
    params: Any, ids: Any, serialization_factor: int = 1, indices_are_sorted: bool = False, name: str | None = None
) -> tf.Tensor:
    """Rows of a table.

    Args:
      params: the table, one row for each id along its first axis.
      ids: row numbers.
      serialization_factor: into how many parts an IPU would cut the table; must divide its rows, changes nothing else.
      indices_are_sorted: accepted for compatibility.
      name: of the operation.

    Returns:
      A tensor of the shape `ids.shape + params.shape[1:]`. The gradient of the table is dense.
    """
    table = tf.convert_to_tensor(params)
    ids = tf.convert_to_tensor(ids)
    rows = table.shape[0]
    if not isinstance(serialization_factor, int) or serialization_factor < 1:
        raise ValueError(
            f"serialization_factor must be a positive integer. Received: serialization_factor={serialization_factor!r}."
        )
    if rows is not None and rows % serialization_factor:
        raise ValueError(
            f"The serialization_factor ({serialization_factor}) must divide the size of the 0th dimension of params "
            f"({rows})."
        )

    with tf.name_scope(name or "embedding_lookup"):
        return lookup(table, ids)
