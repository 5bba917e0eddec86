"""Preparation of images on the device."""

from typing import Any

import tensorflow as tf

__all__ = ["normalise_image"]

_DTYPES = (tf.uint8, tf.float16, tf.float32)


def normalise_image(
    image: Any, channel_offsets: Any, channel_scales: Any, scale: float = 1, name: str | None = None
) -> tf.Tensor:
    """`(image * scale - channel_offsets) * channel_scales`, with a fourth channel of zeros.

    Args:
      image: pixels with three channels in the last axis: uint8, float16 or float32.
      channel_offsets, channel_scales: three numbers each.
      scale: applied first, for example 1 / 255.
      name: of the operation.

    Returns:
      Images with four channels; float16 for uint8 images.
    """
    image = tf.stop_gradient(tf.convert_to_tensor(image))
    if image.dtype not in _DTYPES:
        raise TypeError(f"image must be of type uint8, float16 or float32. Received: {image.dtype.name}.")
    if image.shape.rank is None or image.shape.rank < 1 or image.shape[-1] != 3:
        raise ValueError(f"image must have three channels in its last axis. Received: shape {image.shape}.")
    dtype = tf.float16 if image.dtype == tf.uint8 else image.dtype
    with tf.name_scope(name or "normalise_image"):
        offsets, scales = (tf.cast(tf.stop_gradient(v), dtype) for v in (channel_offsets, channel_scales))
        result = (tf.cast(image, dtype) * tf.cast(scale, dtype) - offsets) * scales
        return tf.pad(result, [[0, 0]] * (image.shape.rank - 1) + [[0, 1]])
