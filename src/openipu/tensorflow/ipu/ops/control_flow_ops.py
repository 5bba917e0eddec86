"""The order in which operations run."""

from typing import Any

import tensorflow as tf

__all__ = ["barrier"]


def barrier(tensors: Any, insert_barrier_for_gradients: bool = False, name: str | None = None) -> Any:
    """The tensors as they are: the compiler orders operations by what they need, and no value depends on more.

    Args:
      tensors: any nest of tensors.
      insert_barrier_for_gradients: accepted for compatibility.
      name: of the operation.
    """
    with tf.name_scope(name or "barrier"):
        return tf.nest.map_structure(tf.identity, tensors)
