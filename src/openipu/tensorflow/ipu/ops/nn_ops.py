"""Activations, losses over many classes or over sequences, and the likeliest labels of sequences."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from openipu.tensorflow.ipu.ops.functional_ops import outlined_function
from openipu.tensorflow.ops import ctc, ctc_decoding, sampled_losses


def gelu(x: Any, approximate: bool = True, name: str | None = None) -> tf.Tensor:
    """The Gaussian error linear unit, by its tanh approximation or exactly."""
    return tf.nn.gelu(x, approximate=approximate, name=name)


def hard_sigmoid(x: Any, name: str | None = None) -> tf.Tensor:
    """`0.2 * x + 0.5`, not below 0 and not above 1."""
    x = tf.convert_to_tensor(x)
    return tf.clip_by_value(x * tf.cast(0.2, x.dtype) + tf.cast(0.5, x.dtype), 0, 1, name=name)


def swish(x: Any, name: str | None = None) -> tf.Tensor:
    """`x * sigmoid(x)`."""
    with tf.name_scope(name or "swish"):
        x = tf.convert_to_tensor(x)
        return x * tf.sigmoid(x)


def softmax(x: Any, stable: bool = False, name: str | None = None) -> tf.Tensor:
    """The softmax over the last axis; it is always computed in the stable way."""
    return tf.nn.softmax(x, name=name)


def multi_conv(func: Callable | None = None, options: dict[str, str] | None = None) -> Callable:
    """Marks a function whose convolutions may run side by side; it computes what a plain call does.

    Args:
      func: the function; without it the result is a decorator.
      options: accepted for compatibility.
    """
    if options is not None and not isinstance(options, dict):
        raise TypeError(f"options must be a dict of strings. Received: options={options!r}.")
    return outlined_function(func, name="multi_conv")


def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    name: str = "sampled_softmax_loss",
    seed: int | None = None,
) -> tf.Tensor:
    """The softmax loss of each example over its true classes and a sample of the others.

    Args:
      weights: [num_classes, features].
      biases: [num_classes].
      labels: [batch, num_true].
      inputs: [batch, features].
      num_sampled: classes to sample.
      num_classes: classes there are.
      num_true: true classes of each example.
      sampled_values: classes and expected counts; from the log-uniform sampler by default.
      name: of the operation.
      seed: of the sampler.
    """
    with tf.name_scope(name):
        logits = _sampled_logits(weights, biases, labels, inputs, num_sampled, num_classes, num_true,
                                 sampled_values, seed, drop_accidental_hits=True)  # fmt: skip
        return tf.nn.softmax_cross_entropy_with_logits(_targets(logits, num_true), logits)


def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    name: str = "nce_loss",
) -> tf.Tensor:
    """The loss of noise-contrastive estimation of each example; arguments as of `sampled_softmax_loss`."""
    with tf.name_scope(name):
        logits = _sampled_logits(weights, biases, labels, inputs, num_sampled, num_classes, num_true,
                                 sampled_values, None, drop_accidental_hits=False)  # fmt: skip
        return tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(_targets(logits, num_true), logits), 1)


def ctc_loss_v2(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    blank_index: int,
    out_dtype: Any = None,
    name: str | None = None,
) -> tf.Tensor:
    """The CTC loss of each example.

    Args:
      labels: [batch, label length].
      logits: [time, batch, classes].
      label_length, logit_length: [batch], how much of each example counts.
      blank_index: the class of the blank.
      out_dtype: of the result; that of the logits by default.
      name: of the operation.
    """
    logits = tf.convert_to_tensor(logits)
    log_probs = tf.nn.log_softmax(tf.cast(logits, tf.float32))
    return _ctc(labels, log_probs, label_length, logit_length, blank_index, logits.dtype, out_dtype, "logits", name)


def ctc_loss_with_log_probs(
    labels: Any,
    data: Any,
    label_length: Any,
    data_length: Any,
    blank_index: int,
    out_dtype: Any = None,
    name: str | None = None,
) -> tf.Tensor:
    """The CTC loss of each example from logarithms of probabilities; arguments as of `ctc_loss_v2`."""
    data = tf.convert_to_tensor(data)
    log_probs = tf.cast(data, tf.float32)
    return _ctc(labels, log_probs, label_length, data_length, blank_index, data.dtype, out_dtype, "data", name)


# Their names in TensorFlow 1.
ctc_loss = ctc_loss_with_log_probs
ctc_loss_with_logits = ctc_loss_v2


def ctc_beam_search_decoder(
    logits: Any, logits_lengths: Any, beam_width: int = 100, top_paths: int = 1, blank_index: int = -1,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:  # fmt: skip
    """The likeliest label sequences.

    Args:
      logits: [time, batch, classes].
      logits_lengths: [batch], how much of each example counts.
      beam_width: how many sequences are followed at a time.
      top_paths: how many are returned.
      blank_index: the class of the blank.
      name: of the operation.

    Returns:
      Negative logarithms of their probabilities [batch, paths], lengths [batch, paths], labels [batch, paths, time].
    """
    log_probs = tf.nn.log_softmax(tf.convert_to_tensor(logits))
    return ctc_beam_search_decoder_with_log_probs(log_probs, logits_lengths, beam_width, top_paths, blank_index, name)


def ctc_beam_search_decoder_with_log_probs(
    log_probs: Any, input_lengths: Any, beam_width: int = 100, top_paths: int = 1, blank_index: int = -1,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:  # fmt: skip
    """The same from logarithms of probabilities."""
    log_probs = tf.convert_to_tensor(log_probs)
    classes = log_probs.shape[-1]
    if classes is None or not -classes <= blank_index < classes:
        raise ValueError(f"blank_index must be one of the {classes} classes. Received: blank_index={blank_index}.")
    with tf.name_scope(name or "ctc_beam_search_decoder"):
        lengths = tf.cast(input_lengths, tf.int32)
        return ctc_decoding.decode(log_probs, lengths, blank_index % classes, beam_width, top_paths)


def _ctc(labels: Any, log_probs: tf.Tensor, label_length: Any, data_length: Any, blank: int, dtype: tf.DType,
         out_dtype: Any, argument: str, name: str | None) -> tf.Tensor:  # fmt: skip
    wanted = dtype if out_dtype is None else tf.as_dtype(out_dtype)
    if dtype == tf.float32 and wanted == tf.float16:
        raise ValueError(f"out_dtype cannot be float16 when dtype of {argument} is float32.")
    classes = log_probs.shape[-1]
    if classes is None or not -classes <= blank < classes:
        raise ValueError(f"blank_index must be one of the {classes} classes. Received: blank_index={blank}.")
    labels, label_length, data_length = (tf.cast(v, tf.int32) for v in (labels, label_length, data_length))
    with tf.name_scope(name or "ctc_loss"):
        loss = ctc.negative_log_likelihood(log_probs, labels, label_length, data_length, blank % classes)
        return tf.cast(loss, wanted)


def _sampled_logits(weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int,
                    num_true: int, sampled_values: Any, seed: int | None,
                    drop_accidental_hits: bool) -> tf.Tensor:  # fmt: skip
    labels = tf.reshape(tf.cast(labels, tf.int32), [-1, num_true])
    if sampled_values is None:
        sampled_values = sampled_losses.log_uniform_sample(labels, num_sampled, num_classes, seed)
    return sampled_losses.sampled_logits(
        tf.convert_to_tensor(weights), tf.convert_to_tensor(biases), labels, tf.convert_to_tensor(inputs),
        sampled_values, drop_accidental_hits,
    )  # fmt: skip


def _targets(logits: tf.Tensor, num_true: int) -> tf.Tensor:
    """Equal weights on the true classes, which come first."""
    hot = tf.range(logits.shape[1]) < num_true
    return tf.broadcast_to(tf.where(hot, tf.cast(1 / num_true, logits.dtype), 0), tf.shape(logits))
