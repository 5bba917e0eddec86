"""Tensors of float8 numbers: conversions, products and convolutions with float16 results."""

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.ipu import refused
from openipu.tensorflow.ops import float8

globals().update(refused.declare(__name__))


class Format(enum.IntEnum):
    """Sign, exponent and mantissa bits."""

    F143 = 0
    F152 = 1


class QuarterTensor:
    """Float8 numbers as a pair of uint8 tensors.

    Args:
      data: one byte for each number.
      metadata: format and scale, from `create_metadata`.
    """

    def __init__(self, data: Any, metadata: Any) -> None:
        self.data = _bytes("data", data)
        self.metadata = _bytes("metadata", metadata)

    @property
    def shape(self) -> tf.TensorShape:
        """Of the numbers."""
        return self.data.shape

    @property
    def dtype(self) -> tf.DType:
        """Of the bytes."""
        return self.data.dtype

    def numpy(self) -> list[Any]:
        """Data and metadata as NumPy arrays."""
        return [self.data.numpy(), self.metadata.numpy()]

    def assign(self, new_values: Sequence[Any], **kwargs: Any) -> None:
        """Replaces data and metadata, which must be variables."""
        for variable, value in zip((self.data, self.metadata), new_values, strict=True):
            variable.assign(value, **kwargs)

    def __repr__(self) -> str:
        return f"QuarterTensor(data={self.data!r}, metadata={self.metadata!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuarterTensor):
            return False
        return all(bool(tf.reduce_all(tf.equal(a, b))) for a, b in zip(self, other, strict=True))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return (self.data, self.metadata)[index]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.data, self.metadata))


def create_metadata(fmt: Format, scale: int = 0) -> int:
    """The metadata byte of a format and a scale between -32 and 31: numbers stand for themselves times 2**scale."""
    if not -32 <= scale <= 31:
        raise ValueError(f"scale must be between -32 and 31. Received: scale={scale}.")
    return (0x80 if Format(fmt) is Format.F143 else 0) | (scale & 63)


def convert_to_f8(values: Any, metadata: Any, name: str | None = None) -> QuarterTensor:
    """Numbers, rounded to float16 first, as float8."""
    with tf.name_scope(name or "convert_to_f8"):
        metadata = tf.cast(metadata, tf.uint8)
        return QuarterTensor(float8.encode(tf.cast(values, tf.float16), metadata), metadata)


def convert_from_f8(packed_input: Any, dtype: tf.DType = tf.float16, name: str | None = None) -> tf.Tensor:
    """Float8 numbers as another float type."""
    data, metadata = packed_input
    with tf.name_scope(name or "convert_from_f8"):
        return tf.cast(float8.decode(data, metadata), dtype)


def f8_matmul(lhs: Any, rhs: Any, name: str = "f8_matmul") -> tf.Tensor:
    """The product of matrices of float8 or float16 numbers."""
    with tf.name_scope(name):
        a, b = _wide(lhs), _wide(rhs)
        for argument, value in (("lhs", a), ("rhs", b)):
            if value.shape.rank not in (2, 3):
                raise ValueError(f"{argument} must be of rank 2 or 3. Received: shape {value.shape}.")
        return tf.cast(tf.matmul(a, b), tf.float16)


def _convolution(function: Callable, dimensions: int, data_format: str) -> Callable:
    rest = [1] if dimensions == 1 else [1] * (dimensions + 2)

    def convolve(
        inputs: Any,
        filters: Any,
        strides: Any,
        padding: str,
        data_format: str = data_format,
        dilations: Any = rest,
        name: str = f"f8_conv_{dimensions}d",
    ) -> tf.Tensor:
        with tf.name_scope(name):
            result = function(_wide(inputs), _wide(filters), strides, padding, data_format, dilations=dilations)
            return tf.cast(result, tf.float16)

    convolve.__name__ = convolve.__qualname__ = f"f8_conv_{dimensions}d"
    convolve.__doc__ = f"The convolution of float8 or float16 numbers over {dimensions} axes; arguments as in tf.nn."
    return convolve


f8_conv_1d = _convolution(tf.nn.conv1d, 1, "NWC")
f8_conv_2d = _convolution(tf.nn.conv2d, 2, "NHWC")
f8_conv_3d = _convolution(tf.nn.conv3d, 3, "NDHWC")


def _wide(value: Any) -> tf.Tensor:
    if isinstance(value, QuarterTensor):
        return float8.decode(*value)
    value = tf.convert_to_tensor(value)
    if value.dtype != tf.float16:
        raise TypeError(f"Expected a QuarterTensor or float16 numbers. Received: {value.dtype.name}.")
    # Float8 numbers have no gradient, so neither has what they are multiplied with.
    return tf.stop_gradient(tf.cast(value, tf.float32))


def _bytes(argument: str, value: Any) -> Any:
    value = value if isinstance(value, tf.Variable) else tf.convert_to_tensor(value)
    if value.dtype != tf.uint8:
        raise TypeError(f"{argument} must be of type uint8. Received: {value.dtype.name}. Use convert_to_f8.")
    return value
