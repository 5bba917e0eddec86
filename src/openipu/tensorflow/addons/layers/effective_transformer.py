"""Attention over sequences of different lengths, whose padding takes part in nothing."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.addons.keras import keras, registered
from openipu.tensorflow.ipu.ops import rand_ops

_EPSILON = 0.001


@registered
class EffectiveTransformer(keras.layers.Layer):
    """Multi-head attention from padded sequences to padded sequences.

    Called with `[from_sequences, from_lengths, to_sequences, to_lengths]` and, as a fifth, a mask of the queries;
    sequences are [batch, length, features], lengths [batch]. Gives `(output, context)`; both are zero behind the end
    of a sequence.

    Args:
      output_layer_size: features of the output.
      max_batch_size, sequences_per_iter: how much an IPU would hold at a time, and take at once; the former is not
        smaller than the latter. They change nothing else.
      use_scale: whether to divide scores by the square root of the head size.
      num_attention_heads, attention_head_size: of the attention.
      qkv_activation, output_activation: behind the dense layers.
      attention_dropout_prob, output_dropout_prob: dropped while training.
      layer_norm_output: whether to normalise the output.
      embedding_initializer, embedding_bias_initializer: of the layers of queries, keys and values.
      output_initializer, output_bias_initializer: of the output layer.
    """

    def __init__(
        self, output_layer_size: int, max_batch_size: int, use_scale: bool = False, num_attention_heads: int = 1,
        attention_head_size: int = 1, sequences_per_iter: int = 1, qkv_activation: Any = None,
        attention_dropout_prob: float | None = None, output_activation: Any = None,
        output_dropout_prob: float | None = None, layer_norm_output: bool = True,
        embedding_initializer: Any = "glorot_uniform", embedding_bias_initializer: Any = "zeros",
        output_initializer: Any = "glorot_uniform", output_bias_initializer: Any = "zeros", **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        if max_batch_size < sequences_per_iter:
            raise ValueError(
                "max_batch_size must be greater than or equal to sequences_per_iter. "
                f"Received: max_batch_size={max_batch_size}, sequences_per_iter={sequences_per_iter}."
            )
        self.output_layer_size, self.max_batch_size = output_layer_size, max_batch_size
        self.use_scale, self.sequences_per_iter = use_scale, sequences_per_iter
        self.num_attention_heads, self.attention_head_size = num_attention_heads, attention_head_size
        self.attention_dropout_prob, self.output_dropout_prob = attention_dropout_prob, output_dropout_prob
        self.layer_norm_output = layer_norm_output
        self.qkv_activation = keras.activations.get(qkv_activation)
        self.output_activation = keras.activations.get(output_activation)
        self.embedding_initializer = keras.initializers.get(embedding_initializer)
        self.embedding_bias_initializer = keras.initializers.get(embedding_bias_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.output_bias_initializer = keras.initializers.get(output_bias_initializer)

    def build(self, input_shapes: Any) -> None:
        """Makes the weights."""
        if len(input_shapes) not in (4, 5):
            raise ValueError(
                "Expected [from_sequences, from_lengths, to_sequences, to_lengths] and, if wanted, a mask of the "
                f"queries. Received: {len(input_shapes)} inputs."
            )
        width = self.num_attention_heads * self.attention_head_size
        for name, source in (("query", 0), ("key", 2), ("value", 2)):
            self._dense(name, input_shapes[source][-1], width, self.embedding_initializer,
                        self.embedding_bias_initializer)  # fmt: skip
        self._dense("output", width, self.output_layer_size, self.output_initializer, self.output_bias_initializer)
        if self.layer_norm_output:
            shape = (self.output_layer_size,)
            self.gamma = self.add_weight(name="gamma", shape=shape, initializer="ones")
            self.beta = self.add_weight(name="beta", shape=shape, initializer="zeros")
        self.built = True

    def _dense(self, name: str, features: int, units: int, kernel: Any, bias: Any) -> None:
        shapes = {"kernel": ((features, units), kernel), "bias": ((units,), bias)}
        for part, (shape, initializer) in shapes.items():
            weight = self.add_weight(name=f"{name}_{part}", shape=shape, initializer=_anew(initializer))
            setattr(self, f"{name}_{part}", weight)

    def _applied(self, name: str, x: tf.Tensor, activation: Any) -> tf.Tensor:
        kernel, bias = (
            tf.cast(tf.convert_to_tensor(getattr(self, f"{name}_{p}")), x.dtype) for p in ("kernel", "bias")
        )
        return activation(tf.matmul(x, kernel) + bias)

    def _heads(self, name: str, x: tf.Tensor) -> tf.Tensor:
        """[batch, heads, length, size]."""
        made = self._applied(name, x, self.qkv_activation)
        shape = [tf.shape(x)[0], x.shape[1], self.num_attention_heads, self.attention_head_size]
        return tf.transpose(tf.reshape(made, shape), [0, 2, 1, 3])

    def call(self, inputs: Any, training: Any = True) -> tuple[tf.Tensor, tf.Tensor]:
        """Output and context."""
        sequences, lengths, others, other_lengths, *query_mask = inputs
        sequences, others = (tf.cast(s, self.compute_dtype) for s in (sequences, others))
        inside, other_inside = _inside(sequences, lengths), _inside(others, other_lengths)
        query, key, value = self._heads("query", sequences), self._heads("key", others), self._heads("value", others)
        scores = tf.matmul(query, key, transpose_b=True)
        if self.use_scale:
            scores /= tf.cast(self.attention_head_size**0.5, scores.dtype)
        scores = tf.where(other_inside[:, None, None, :], tf.cast(scores, tf.float32), -1e9)
        weights = tf.cast(tf.nn.softmax(scores), query.dtype)
        # A sequence without elements attends to nothing.
        weights = tf.where(other_inside[:, None, None, :], weights, 0)
        if query_mask:
            mask = tf.cast(tf.reshape(query_mask[0], tf.shape(inside)), weights.dtype)
            weights *= mask[:, None, :, None]
        if training and self.attention_dropout_prob:
            weights = rand_ops.dropout(weights, self.attention_dropout_prob)
        context = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
        context = tf.reshape(context, [tf.shape(sequences)[0], sequences.shape[1],
                                       self.num_attention_heads * self.attention_head_size])  # fmt: skip
        output = self._applied("output", context, self.output_activation)
        if training and self.output_dropout_prob:
            output = rand_ops.dropout(output, self.output_dropout_prob)
        if self.layer_norm_output:
            output = self._normalised(output)
        return tf.where(inside[:, :, None], output, 0), tf.where(inside[:, :, None], context, 0)

    def _normalised(self, output: tf.Tensor) -> tf.Tensor:
        wide = tf.cast(output, tf.float32)
        mean, variance = tf.nn.moments(wide, [-1], keepdims=True)
        gamma, beta = (tf.cast(tf.convert_to_tensor(w), tf.float32) for w in (self.gamma, self.beta))
        return tf.cast((wide - mean) * tf.math.rsqrt(variance + _EPSILON) * gamma + beta, output.dtype)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        plain = (
            "output_layer_size", "max_batch_size", "use_scale", "num_attention_heads", "attention_head_size",
            "sequences_per_iter", "attention_dropout_prob", "output_dropout_prob", "layer_norm_output",
        )  # fmt: skip
        initializers = ("embedding_initializer", "embedding_bias_initializer", "output_initializer",
                        "output_bias_initializer")  # fmt: skip
        config = {name: getattr(self, name) for name in plain}
        config |= {name: keras.initializers.serialize(getattr(self, name)) for name in initializers}
        activations = ("qkv_activation", "output_activation")
        config |= {name: keras.activations.serialize(getattr(self, name)) for name in activations}
        return {**super().get_config(), **config}


def _anew(initializer: Any) -> Any:
    """An initializer like the one given: one that is used twice gives equal numbers."""
    return (
        type(initializer).from_config(initializer.get_config()) if hasattr(initializer, "get_config") else initializer
    )


def _inside(sequences: tf.Tensor, lengths: Any) -> tf.Tensor:
    """[batch, length]: whether a position belongs to its sequence."""
    return tf.range(sequences.shape[1])[None] < tf.reshape(tf.cast(lengths, tf.int32), [-1, 1])
