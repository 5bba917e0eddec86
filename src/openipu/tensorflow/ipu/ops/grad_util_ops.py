"""Access to gradients on their way back through the program."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.ipu.eager import backprop

__all__ = ["capture_upstream_gradients"]


def capture_upstream_gradients(args: Any, tag: str = "") -> Any:
    """The tensors as they are; the gradients that reach them are kept by the innermost capture context.

    Args:
      args: any nest of tensors.
      tag: the name the gradients are kept under.
    """
    flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(args)]

    @tf.custom_gradient
    def watched(*tensors: tf.Tensor) -> Any:
        def gradient(*upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            backprop.keep(tag, list(upstream))
            return upstream

        return [tf.identity(tensor) for tensor in tensors], gradient

    return tf.nest.pack_sequence_as(args, list(watched(*flat)))
