"""The two float8 formats of the IPU, as bytes in uint8 tensors."""

import ml_dtypes
import numpy as np
import tensorflow as tf

# By the format bit of the metadata: F152 without it, F143 with it.
_TYPES = (ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e4m3fnuz)
_MANTISSA = (2, 3)
_LEAST_EXPONENT = (-15, -7)
_NAN = 0x80
_LARGEST = 0x7F


def encode(values: tf.Tensor, metadata: tf.Tensor) -> tf.Tensor:
    """The nearest float8 of `values / 2**scale`, ties to even; what is too large becomes the largest number."""
    f143, scale = _unpack(metadata)
    mantissa, least = tf.gather(_MANTISSA, f143), tf.gather(_LEAST_EXPONENT, f143)
    wide = tf.cast(values, tf.float32) * _power(-scale)
    size = tf.minimum(tf.abs(wide), tf.constant(2.0**20))
    exponent = tf.maximum(tf.bitwise.right_shift(tf.bitcast(size, tf.int32), 23) - 127, least)
    steps = tf.cast(tf.round(size * _power(mantissa - exponent)), tf.int32)
    # Steps of a binade follow those of the one below, so rounding up into the next needs no care.
    code = tf.minimum(steps + tf.bitwise.left_shift(exponent - least, mantissa), _LARGEST)
    code = tf.where((wide < 0) & (code > 0), code + 0x80, code)
    return tf.cast(tf.where(tf.math.is_nan(wide), _NAN, code), tf.uint8)


def decode(data: tf.Tensor, metadata: tf.Tensor) -> tf.Tensor:
    """The float32 values of float8 bytes: the number of the byte times 2**scale."""
    f143, scale = _unpack(metadata)
    codes = np.arange(256, dtype=np.uint8)
    table = tf.constant(np.stack([codes.view(kind).astype(np.float32) for kind in _TYPES]))
    return tf.gather(tf.gather(table, f143), tf.cast(data, tf.int32)) * _power(scale)


def _unpack(metadata: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Whether the format is F143, as 0 or 1, and the scale: the low six bits, signed."""
    byte = tf.cast(tf.reshape(metadata, []), tf.int32)
    low = tf.bitwise.bitwise_and(byte, 63)
    return tf.bitwise.right_shift(byte, 7), tf.where(low >= 32, low - 64, low)


def _power(exponent: tf.Tensor) -> tf.Tensor:
    """Two to a whole power, exactly."""
    return tf.bitcast(tf.bitwise.left_shift(exponent + 127, 23), tf.float32)
