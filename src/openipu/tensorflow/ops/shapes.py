"""Shapes of tensors, known when a program is made or not yet."""

from typing import Any

import tensorflow as tf


def sizes(tensor: tf.Tensor) -> list[Any]:
    """The size of every axis: a number where it is known, a tensor where it is not.

    Programs know all of them; Keras builds layers with an unknown batch size.
    """
    dynamic = None if tensor.shape.is_fully_defined() else tf.shape(tensor)
    return [dynamic[i] if size is None and dynamic is not None else size for i, size in enumerate(tensor.shape)]


def static_shape(tensor: tf.Tensor, name: str = "tensor") -> list[int]:
    """The shape of a tensor, refused if part of it is unknown.

    Args:
      tensor: the tensor.
      name: what to call it in the message.
    """
    if not tensor.shape.is_fully_defined():
        raise ValueError(
            f"{name} must have a static shape, as every tensor on the IPU. Received: shape {tensor.shape}. "
            "Give the function's inputs fixed shapes, for example with dataset.batch(n, drop_remainder=True)."
        )
    return [size for size in tensor.shape.as_list() if size is not None]
