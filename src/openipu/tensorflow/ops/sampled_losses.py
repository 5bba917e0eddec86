"""Losses over a sample of many classes, with a sampler that compiles."""

from typing import Any

import numpy as np
import tensorflow as tf

from openipu.tensorflow.ops.embedding import lookup

# As in TensorFlow: the sampled classes, and how often the true and the sampled ones were to be expected.
Sampled = tuple[Any, Any, Any]


def log_uniform_sample(labels: tf.Tensor, sampled: int, classes: int, seed: int | None = None) -> Sampled:
    """Different classes drawn at random, low numbers more often: class c with log(1 + 1 / (c + 1)).

    Args:
      labels: [batch, true classes].
      sampled: how many to draw.
      classes: how many there are.
      seed: of the operation.
    """
    if not 0 < sampled <= classes:
        raise ValueError(
            f"num_sampled must be between 1 and num_classes. Received: num_sampled={sampled}, num_classes={classes}."
        )
    numbers = np.arange(classes)
    probability = np.log1p(1 / (numbers + 1)) / np.log(classes + 1)
    expected = tf.constant(-np.expm1(_tries(probability, sampled) * np.log1p(-probability)), tf.float32)
    # The largest of logarithms with Gumbel noise are a draw without replacement.
    uniform = tf.random.uniform([classes], minval=float(np.finfo(np.float32).tiny), seed=seed)
    noise = -tf.math.log(-tf.math.log(uniform))
    chosen = tf.math.top_k(tf.constant(np.log(probability), tf.float32) + noise, sampled).indices
    return chosen, tf.gather(expected, labels), tf.gather(expected, chosen)


def sampled_logits(
    weights: tf.Tensor,
    biases: tf.Tensor,
    labels: tf.Tensor,
    inputs: tf.Tensor,
    sampled: Sampled,
    drop_accidental_hits: bool,
) -> tf.Tensor:
    """[batch, true classes + sampled classes] logits, corrected by what was to be expected.

    Args:
      weights, biases: of all classes.
      labels: [batch, true classes].
      inputs: [batch, features].
      sampled: classes and expectations.
      drop_accidental_hits: whether sampled classes that are the true one are taken out.
    """
    chosen, true_expected, sampled_expected = (tf.stop_gradient(tf.convert_to_tensor(value)) for value in sampled)
    chosen = tf.cast(chosen, tf.int32)
    true_weights = lookup(weights, labels)
    true = tf.einsum("bf,btf->bt", inputs, true_weights) + lookup(biases, labels)
    true -= tf.math.log(tf.cast(true_expected, true.dtype))
    other = tf.matmul(inputs, lookup(weights, chosen), transpose_b=True) + lookup(biases, chosen)
    other -= tf.math.log(tf.cast(sampled_expected, other.dtype))
    if drop_accidental_hits:
        hit = tf.reduce_any(tf.equal(labels[:, :, None], chosen), axis=1)
        other = tf.where(hit, tf.constant(other.dtype.min / 2, other.dtype), other)
    return tf.concat([true, other], 1)


def _tries(probability: np.ndarray, sampled: int) -> float:
    """Draws with replacement that are expected to give this many different classes."""
    low, high = 0.0, 1.0
    while (different := -np.expm1(high * np.log1p(-probability)).sum()) < sampled - 1e-3 and high < 1e12:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        different = -np.expm1(middle * np.log1p(-probability)).sum()
        low, high = (middle, high) if different < sampled else (low, middle)
    return high
