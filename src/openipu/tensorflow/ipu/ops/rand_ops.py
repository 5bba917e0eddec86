"""Dropout."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.ops.shapes import sizes

__all__ = ["dropout"]


def dropout(
    x: Any,
    rate: float = 0.5,
    noise_shape: Sequence[int] | None = None,
    seed: Any = None,
    name: str | None = None,
    ref: bool = True,
) -> tf.Tensor:
    """Sets elements to zero at random and scales the others, so that the expected sum stays the same.

    Args:
      x: the tensor.
      rate: the probability of an element to become zero.
      noise_shape: the shape of the random choice; 1 where all elements along an axis share it.
      seed: two int32 numbers that fix the choice; without them every step and replica has its own.
      name: of the operation.
      ref: whether there is a gradient.
    """
    x = tf.convert_to_tensor(x)
    if not 0 <= rate < 1:
        raise ValueError(f"The rate must be in the range [0, 1), but was {rate}")
    shape = _noise_shape(x, noise_shape)
    with tf.name_scope(name or "dropout"):
        if seed is None:
            noise = tf.random.uniform(shape)
        else:
            noise = tf.random.stateless_uniform(shape, tf.convert_to_tensor(seed))
        scale = tf.where(noise >= rate, 1 / (1 - rate), 0.0)
        return (x if ref else tf.stop_gradient(x)) * tf.cast(scale, x.dtype)


def _noise_shape(x: tf.Tensor, noise_shape: Sequence[int] | None) -> list[Any]:
    shape = sizes(x)
    if noise_shape is None:
        return shape
    given = [size if wanted is None else wanted for size, wanted in zip(shape, noise_shape, strict=False)]
    known = [(s, w) for s, w in zip(shape, given, strict=False) if isinstance(s, int) and isinstance(w, int)]
    if len(noise_shape) != len(shape) or any(wanted not in (1, size) for size, wanted in known):
        raise ValueError(
            f"noise_shape must have, for every axis of x, its size or 1. "
            f"Received: noise_shape={list(noise_shape)}, x of shape {x.shape}."
        )
    return given
