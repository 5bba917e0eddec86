"""The loss of connectionist temporal classification, by its forward recursion in logarithms."""

import tensorflow as tf

from openipu.tensorflow.ops.shapes import sizes

# The logarithm of zero, finite so that differences of it are zero and not NaN.
_ZERO = -1e30


def negative_log_likelihood(
    log_probs: tf.Tensor, labels: tf.Tensor, label_length: tf.Tensor, data_length: tf.Tensor, blank: int
) -> tf.Tensor:
    """The negative logarithm of the probability of each example's labels.

    Args:
      log_probs: float32 [time, batch, classes].
      labels: int32 [batch, length], without blanks.
      label_length, data_length: int32 [batch]; what lies beyond is ignored.
      blank: the class that stands between labels.
    """
    steps, batch, _ = sizes(log_probs)
    length = sizes(labels)[1]
    # Labels with a blank before, between and behind them: the states of the recursion.
    blanks = tf.fill([batch, length], blank)
    states = tf.reshape(tf.stack([blanks, labels], 2), [batch, 2 * length])
    states = tf.concat([states, blanks[:, :1]], 1)
    before = tf.concat([tf.fill([batch, 2], blank), states[:, :-2]], 1)
    # A blank may be left out between two labels that differ.
    may_skip = tf.not_equal(states, blank) & tf.not_equal(states, before)
    everywhere = tf.broadcast_to(states[:, None], [batch, steps, 2 * length + 1])
    emitted = tf.gather(tf.transpose(log_probs, [1, 0, 2]), everywhere, batch_dims=2)
    emitted = tf.transpose(emitted, [1, 0, 2])
    first = tf.where(tf.range(2 * length + 1) < 2, emitted[0], _ZERO)

    def advance(alpha: tf.Tensor, item: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        emission, time = item
        one = _shifted(alpha, 1)
        two = tf.where(may_skip, _shifted(alpha, 2), _ZERO)
        following = tf.reduce_logsumexp(tf.stack([alpha, one, two]), 0) + emission
        return tf.where((time < data_length)[:, None], tf.maximum(following, _ZERO), alpha)

    last = tf.foldl(advance, (emitted[1:], tf.range(1, steps)), initializer=first)
    # It may end in the last label or in the blank behind it.
    ends = tf.stack([2 * label_length, tf.maximum(2 * label_length - 1, 0)], 1)
    finals = tf.gather(last, ends, batch_dims=1)
    finals = tf.where(tf.stack([label_length >= 0, label_length > 0], 1), finals, _ZERO)
    return -tf.reduce_logsumexp(finals, 1)


def _shifted(alpha: tf.Tensor, by: int) -> tf.Tensor:
    return tf.pad(alpha[:, :-by], [[0, 0], [by, 0]], constant_values=_ZERO)
