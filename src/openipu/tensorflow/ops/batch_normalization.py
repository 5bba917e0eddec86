"""Batch normalisation in training as the core's call, in programs for the IPU."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from openipu.compiler import normalization
from openipu.tensorflow.ops.emit import emit_many
from openipu.tensorflow.stablehlo import custom_call


@tf.autograph.experimental.do_not_convert
def normalised(
    x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor, epsilon: float, axis: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The batch normalised by its own mean and variance, and these; as `openipu.compiler.normalization.normalised`."""
    config = {"epsilon": epsilon, "axis": axis}

    @tf.custom_gradient
    def run(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Callable]:
        batch, each = tf.TensorSpec(x.shape, x.dtype), tf.TensorSpec(scale.shape, x.dtype)
        y, mean, variance = emit_many("normalised", [x, scale, offset], [batch, each, each], **config)

        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
            operands = [upstream[0], x, scale, mean, variance]
            return emit_many("normalised_gradient", operands, [batch, each, each], **config)

        return (y, mean, variance), gradient

    results: Any = run(x, scale, offset)
    y, mean, variance = results
    return y, tf.stop_gradient(mean), tf.stop_gradient(variance)


@custom_call("openipu.normalised")
def _normalised(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    return list(normalization.forward(*operands, epsilon=config["epsilon"], axis=config["axis"]))


@custom_call("openipu.normalised_gradient")
def _normalised_gradient(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    return list(normalization.backward(*operands, epsilon=config["epsilon"], axis=config["axis"]))
