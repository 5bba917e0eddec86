"""Conversions to and from float8."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.addons.keras import keras, registered
from openipu.tensorflow.ipu.ops import f8_ops


@registered
class ConvertToF8(keras.layers.Layer):
    """Numbers as float8: `call(data, metadata)` gives the list of bytes and metadata."""

    def call(self, data: Any, metadata: Any, **kwargs: Any) -> list[tf.Tensor]:
        """Bytes and metadata."""
        return list(f8_ops.convert_to_f8(data, metadata, name=self.name))


@registered
class ConvertFromF8(keras.layers.Layer):
    """The numbers of a list of float8 bytes and metadata.

    Args:
      dtype: of the result.
    """

    def __init__(self, dtype: Any = tf.float16, **kwargs: Any) -> None:
        super().__init__(dtype=tf.as_dtype(dtype).name if not isinstance(dtype, dict) else dtype, **kwargs)

    def call(self, inputs: Any, **kwargs: Any) -> tf.Tensor:
        """The numbers."""
        data, metadata = inputs
        return f8_ops.convert_from_f8((data, metadata), tf.as_dtype(self.compute_dtype), name=self.name)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {**keras.layers.Layer.get_config(self), "dtype": self.compute_dtype}
