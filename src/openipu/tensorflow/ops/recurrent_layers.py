"""LSTM and GRU layers on tensors with time first, as Keras and the addons define them."""

from typing import Any

import tensorflow as tf

from openipu.compiler.recurrent import GRU, LSTM
from openipu.tensorflow.ops import recurrent
from openipu.tensorflow.ops.shapes import sizes


def lstm(
    x: tf.Tensor,
    state: list[tf.Tensor],
    kernel: tf.Tensor,
    recurrent_kernel: tf.Tensor,
    bias: tf.Tensor | None,
    mask: tf.Tensor | None = None,
    cell: LSTM | None = None,
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """The hidden states [time, batch, units] and the last state (hidden, memory).

    Args:
      x: [time, batch, features].
      state: hidden state and memory at the beginning.
      kernel, recurrent_kernel, bias: [features, 4 units], [units, 4 units], [4 units]; gates in Keras' order.
      mask: [time, batch]; where it is False the state stays as it is.
      cell: the activations.
    """
    return recurrent.run(cell or LSTM(), [_product(x, kernel, bias)], state, [recurrent_kernel], mask)


def gru(
    x: tf.Tensor,
    state: list[tf.Tensor],
    kernel: tf.Tensor,
    recurrent_kernel: tf.Tensor,
    bias: tf.Tensor | None,
    mask: tf.Tensor | None = None,
    cell: GRU | None = None,
    attention: tf.Tensor | None = None,
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """The hidden states [time, batch, units] and the last state (hidden,).

    Args:
      x, state, kernel, recurrent_kernel, mask: as of `lstm`, with 3 gates.
      bias: [2, 3 units], of inputs and state, if the reset gate comes after the product; [3 units] otherwise.
      cell: the activations, and where the reset gate comes.
      attention: [time, batch], the share taken from the update gate.
    """
    cell = cell or GRU()
    units = int(recurrent_kernel.shape[0] or 0)
    weights = [recurrent_kernel[:, : 2 * units], recurrent_kernel[:, 2 * units :]]
    if cell.reset_after:
        of_state = tf.zeros([3 * units], recurrent_kernel.dtype) if bias is None else bias[1]
        bias, weights = None if bias is None else bias[0], [recurrent_kernel, of_state]
    inputs = [_product(x, kernel, bias), *([] if attention is None else [attention[:, :, None]])]
    return recurrent.run(cell, inputs, state, weights, mask)


def shown(hidden: tf.Tensor, mask: tf.Tensor | None, zeros: bool) -> tf.Tensor:
    """What a layer gives out: where the mask is False zeros, or the output before, which begins with zeros.

    Args:
      hidden: [time, batch, units].
      mask: [time, batch].
      zeros: whether masked times are zero.
    """
    if mask is None:
        return hidden
    visible = mask if zeros else tf.cumsum(tf.cast(mask, tf.int32)) > 0
    return tf.where(visible[:, :, None], hidden, tf.zeros_like(hidden))


def time_first(value: Any) -> tf.Tensor:
    """[batch, time, ...] as [time, batch, ...], and the other way round."""
    value = tf.convert_to_tensor(value)
    return tf.transpose(value, [1, 0, *range(2, value.shape.rank or 2)])


def _product(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
    """One product for all times."""
    time, batch, features = sizes(x)
    product = tf.matmul(tf.reshape(x, [-1, features]), kernel)
    if bias is not None:
        product += bias
    return tf.reshape(product, [time, batch, kernel.shape[1]])
