"""Dense layers whose product an IPU computes in pieces, or in float8."""

from typing import Any

import numpy as np
import tensorflow as tf

from openipu.tensorflow.addons.keras import keras, registered
from openipu.tensorflow.ipu.ops import f8_ops
from openipu.tensorflow.ipu.ops.math_ops import serialized_matmul

_DIMENSIONS = {
    "input_columns": "a_columns",
    "input_rows_kernel_columns": "a_rows_b_columns",
    "kernel_rows": "b_rows",
}
_PARTS = ("kernel", "bias")


@registered
class SerialDense(keras.layers.Layer):
    """A dense layer whose product an IPU would compute in pieces; its numbers are those of `keras.layers.Dense`.

    Args:
      units: of the result.
      serialization_factor: number of pieces.
      serialization_dimension: "input_columns", "input_rows_kernel_columns" or "kernel_rows".
      activation, use_bias, kernel_initializer, bias_initializer, kernel_regularizer, bias_regularizer,
      activity_regularizer, kernel_constraint, bias_constraint: as of `keras.layers.Dense`.
    """

    def __init__(
        self,
        units: int,
        serialization_factor: int,
        serialization_dimension: str,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(activity_regularizer=keras.regularizers.get(activity_regularizer), **kwargs)
        if serialization_dimension not in _DIMENSIONS:
            expected = ", ".join(repr(known) for known in _DIMENSIONS)
            raise ValueError(f"Invalid serialization_dimension={serialization_dimension}, expected one of: {expected}.")
        if not isinstance(serialization_factor, int) or serialization_factor < 1:
            raise ValueError(
                "serialization_factor must be a positive integer. "
                f"Received: serialization_factor={serialization_factor!r}."
            )
        self.units = int(units)
        self.serialization_factor, self.serialization_dimension = serialization_factor, serialization_dimension
        self.activation = keras.activations.get(activation)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)

    def build(self, input_shape: Any) -> None:
        """Makes the weights."""
        features = tuple(input_shape)[-1]
        if features is None:
            raise ValueError(f"The last axis of the inputs must have a known size. Received: shape {input_shape}.")
        shapes = {"kernel": (features, self.units), "bias": (self.units,)}
        for part in _PARTS if self.use_bias else _PARTS[:1]:
            settings = {name: getattr(self, f"{part}_{name}") for name in ("initializer", "regularizer", "constraint")}
            setattr(self, part, self.add_weight(name=part, shape=shapes[part], **settings))
        self.built = True

    def call(self, inputs: Any, **kwargs: Any) -> tf.Tensor:
        """The product, with bias and activation."""
        inputs = tf.cast(inputs, self.compute_dtype)
        kernel = tf.cast(tf.convert_to_tensor(self.kernel), inputs.dtype)
        dimension = _DIMENSIONS[self.serialization_dimension]
        result = serialized_matmul(inputs, kernel, self.serialization_factor, dimension, name=self.name)
        if self.use_bias:
            result += tf.cast(tf.convert_to_tensor(self.bias), inputs.dtype)
        return self.activation(result)

    def compute_output_shape(self, input_shape: Any) -> tuple:
        """Units in the last axis."""
        return (*tuple(input_shape)[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        config = {
            "units": self.units,
            "serialization_factor": self.serialization_factor,
            "serialization_dimension": self.serialization_dimension,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "activity_regularizer": keras.regularizers.serialize(self.activity_regularizer),
        }
        for part in _PARTS:
            config[f"{part}_initializer"] = keras.initializers.serialize(getattr(self, f"{part}_initializer"))
            config[f"{part}_regularizer"] = keras.regularizers.serialize(getattr(self, f"{part}_regularizer"))
            config[f"{part}_constraint"] = keras.constraints.serialize(getattr(self, f"{part}_constraint"))
        return {**super().get_config(), **config}


@registered
class Dense(keras.layers.Dense):
    """Stock Keras' layer; of a list of float8 bytes and metadata it computes a float8 product.

    Args:
      units: of the result.
      kernel_format, kernel_scale: of the float8 weights; the scale is between -32 and 31.
      kernel_data_initializer: of the float8 weights' bytes, a function of shape and dtype; random ones by default.
      **kwargs: as of `keras.layers.Dense`.
    """

    def __init__(
        self,
        units: int,
        kernel_format: Any = f8_ops.Format.F143,
        kernel_scale: int = 0,
        kernel_data_initializer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, **kwargs)
        self.kernel_format, self.kernel_scale = f8_ops.Format(kernel_format), kernel_scale
        self._kernel_metadata = f8_ops.create_metadata(self.kernel_format, kernel_scale)
        self.kernel_data_initializer = kernel_data_initializer or _random_bytes
        self._is_float8 = False
        # Stock Keras expects one tensor.
        self.input_spec = None

    def build(self, input_shape: Any) -> None:
        """Makes the weights: float8 ones where the input is a list."""
        shapes = list(input_shape)
        self._is_float8 = bool(shapes) and isinstance(shapes[0], (tuple, list, tf.TensorShape))
        if not self._is_float8:
            super().build(input_shape)
            return
        shape, settings = (tuple(shapes[0])[-1], self.units), {"trainable": False, "dtype": "uint8"}
        self.kernel_data = self.add_weight(
            name="kernel_data", shape=shape, initializer=self.kernel_data_initializer, **settings
        )
        metadata = self._kernel_metadata
        self.kernel_metadata = self.add_weight(
            name="kernel_metadata", shape=(), initializer=lambda shape, dtype=None: tf.cast(metadata, tf.uint8),
            **settings,
        )  # fmt: skip
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(self.units,), initializer=self.bias_initializer, dtype="float16"
            )
        self.built = True

    def call(self, inputs: Any) -> tf.Tensor:
        """The product, with bias and activation."""
        if not self._is_float8:
            return super().call(inputs)
        data, metadata = inputs
        weights = f8_ops.QuarterTensor(*(tf.convert_to_tensor(w) for w in (self.kernel_data, self.kernel_metadata)))
        result = f8_ops.f8_matmul(f8_ops.QuarterTensor(data, metadata), weights, name=self.name)
        if self.use_bias:
            result += tf.cast(tf.convert_to_tensor(self.bias), tf.float16)
        return result if self.activation is None else self.activation(result)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        own = self.kernel_data_initializer is not _random_bytes
        return {
            **super().get_config(),
            "kernel_format": int(self.kernel_format),
            "kernel_scale": self.kernel_scale,
            "kernel_data_initializer": keras.initializers.serialize(self.kernel_data_initializer) if own else None,
        }


def _random_bytes(shape: Any, dtype: Any = None) -> tf.Tensor:
    """Any float8 number; the byte that is not a number becomes zero."""
    codes = np.random.default_rng().integers(0, 256, tuple(shape), dtype=np.uint8)
    return tf.constant(np.where(codes == 0x80, 0, codes).astype(np.uint8))
