"""Shapes that must be known when a program is made."""

import tensorflow as tf


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
