"""Histograms."""

from typing import Any

import tensorflow as tf

__all__ = ["fixed_width_bins", "histogram", "histogram_normalize", "histogram_update"]


def fixed_width_bins(inputs: Any, n_bins: int) -> tf.Tensor:
    """`n_bins` levels at equal distances from the least to the greatest element."""
    inputs = tf.convert_to_tensor(inputs)
    return tf.linspace(tf.reduce_min(inputs), tf.reduce_max(inputs), n_bins)


def histogram(inputs: Any, levels: Any, absolute_of_input: bool = False) -> tf.Tensor:
    """How many elements lie below, between and above levels.

    Args:
      inputs: a float16 or float32 vector.
      levels: n levels, ascending.
      absolute_of_input: whether to count absolute values.

    Returns:
      n + 1 float32 counts; count i is of elements with `levels[i - 1] <= element < levels[i]`.
    """
    inputs, levels = tf.convert_to_tensor(inputs), tf.convert_to_tensor(levels)
    for argument, value in (("inputs", inputs), ("levels", levels)):
        if value.dtype not in (tf.float16, tf.float32):
            raise TypeError(
                f"Value passed to parameter '{argument}' has DataType {value.dtype.name} not in list of allowed "
                "values: float16, float32."
            )
        if value.shape.rank != 1:
            raise ValueError(
                f"{argument} must be a float16 or float32 tensor of rank 1. Received: shape {value.shape}."
            )
    inputs, levels = tf.stop_gradient(inputs), tf.stop_gradient(levels)
    if absolute_of_input:
        inputs = tf.abs(inputs)
    reached = tf.cast(inputs[None, :] >= tf.cast(levels, inputs.dtype)[:, None], tf.float32)
    counts = tf.reduce_sum(reached, axis=1)
    total = tf.cast(tf.size(inputs), tf.float32)
    return tf.concat([[total], counts], 0) - tf.concat([counts, [0.0]], 0)


def histogram_update(hist: Any, inputs: Any, levels: Any, absolute_of_input: bool = False) -> tf.Tensor:
    """A histogram with the counts of more elements added."""
    return tf.convert_to_tensor(hist) + histogram(inputs, levels, absolute_of_input)


def histogram_normalize(hist: Any) -> tf.Tensor:
    """The histogram divided by the sum of its counts."""
    hist = tf.convert_to_tensor(hist)
    return hist / tf.reduce_sum(hist)
