"""Embedding."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.addons.keras import keras, registered
from openipu.tensorflow.addons.layers.ipu_layer import IPULayer
from openipu.tensorflow.ipu.ops.embedding_ops import embedding_lookup


@registered
class Embedding(IPULayer):
    """Rows of a table, one for each number in [batch, input_length].

    Args:
      input_dim, output_dim: rows and columns of the table.
      embeddings_initializer: of the table.
      embeddings_regularizer, activity_regularizer, embeddings_constraint, mask_zero, input_length: refused.
      serialization_factor: into how many parts an IPU would cut the table; must divide its rows.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        activity_regularizer: Any = None,
        embeddings_constraint: Any = None,
        mask_zero: bool = False,
        input_length: int | None = None,
        serialization_factor: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._refuse(
            embeddings_regularizer=embeddings_regularizer,
            activity_regularizer=activity_regularizer,
            embeddings_constraint=embeddings_constraint,
            mask_zero=mask_zero,
            input_length=input_length,
        )
        if input_dim % serialization_factor:
            raise ValueError(
                f"serialization_factor must divide input_dim. Received: serialization_factor={serialization_factor}, "
                f"input_dim={input_dim}."
            )
        self.input_dim, self.output_dim = input_dim, output_dim
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.serialization_factor = serialization_factor

    def build(self, input_shape: Any) -> None:
        """Makes the table."""
        if len(input_shape) != 2:
            raise ValueError(
                "The input shape should be a tensor of shape [batch, input_length]. "
                f"Received: input_shape={tuple(input_shape)}."
            )
        shape = (self.input_dim, self.output_dim)
        self.embeddings = self.add_weight(name="embeddings", shape=shape, initializer=self.embeddings_initializer)
        self.built = True

    def call(self, inputs: Any, inputs_are_sorted: bool = False, training: Any = None) -> tf.Tensor:
        """[batch, input_length, output_dim]."""
        table = tf.cast(tf.convert_to_tensor(self.embeddings), self.compute_dtype)
        ids = tf.cast(inputs, tf.int32)
        return embedding_lookup(table, ids, self.serialization_factor, inputs_are_sorted, name=self.name)

    def compute_output_shape(self, input_shape: Any) -> tuple:
        """A row for each number."""
        return (*input_shape, self.output_dim)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "serialization_factor": self.serialization_factor,
        }
