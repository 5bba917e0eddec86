"""Keras 3's batch normalisation in programs for the IPU: training is the core's call.

Keras 2's layer is one operation of TensorFlow already, which arrives as such.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from openipu.tensorflow.ops.batch_normalization import normalised
from openipu.tensorflow.ops.emit import capturing


def install(version: Any) -> None:
    """Let batch normalisation of Keras 3 find the call while a program for the IPU is captured."""
    if version.__name__.endswith("keras3"):
        layer = version.BatchNormalization
        layer.call = _call(layer.call, layer._moments)


def _call(stock: Callable, moments: Callable) -> Callable:
    @functools.wraps(stock)
    def call(self: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if not (capturing() and training and self.trainable) or mask is not None or _special(self, inputs, moments):
            return stock(self, inputs, training, mask)
        # As Keras computes: halves are normalised in float32.
        x = tf.cast(inputs, tf.float64 if inputs.dtype == tf.float64 else tf.float32)
        axis = self.axis % len(x.shape)
        shape = (x.shape[axis],)
        scale = tf.cast(self.gamma, x.dtype) if self.scale else tf.ones(shape, x.dtype)
        offset = tf.cast(self.beta, x.dtype) if self.center else tf.zeros(shape, x.dtype)
        y, *statistics = normalised(x, scale, offset, self.epsilon, axis)
        for moving, now in zip((self.moving_mean, self.moving_variance), statistics, strict=True):
            moving.assign(tf.cast(moving, x.dtype) * self.momentum + now * (1.0 - self.momentum))
        return tf.cast(y, self.compute_dtype)

    return call


def _special(layer: Any, inputs: Any, moments: Callable) -> bool:
    """Whether a layer is more than its statistics and a scale, or its input has no known shape."""
    special = layer.synchronized or getattr(layer, "renorm", False) or type(layer)._moments is not moments
    return bool(special) or not isinstance(inputs, tf.Tensor) or not inputs.shape.is_fully_defined()
