"""Printing from a running program, layout hints, and operations on the state of loops."""

import logging
import sys
from typing import Any

import tensorflow as tf

from openipu.errors import UnsupportedError
from openipu.tensorflow.feeds import loops
from openipu.tensorflow.ops.delay import delayed
from openipu.tensorflow.ops.emit import emit

log = logging.getLogger("openipu.tensorflow")


def print_tensor(input: Any, name: str = "") -> tf.Tensor:
    """The tensor as it is; its value is written to stderr every time the program comes by.

    Use the result, or the operation is removed.

    Args:
      input: the tensor.
      name: put behind the name of the operation in the title.
    """
    tensor = tf.convert_to_tensor(input)
    if tf.executing_eagerly():
        print(f"{name or 'print_tensor'}: {tensor.numpy()}", file=sys.stderr, flush=True)
        return tensor
    scope = tf.get_current_name_scope()
    title = "/".join(part for part in (scope, "print_tensor", name) if part)

    @tf.custom_gradient
    def printed(tensor: tf.Tensor) -> Any:
        return emit("print_tensor", [tensor], tensor.shape, tensor.dtype, title=title), tf.identity

    return printed(tensor)


def fifo(x: Any, depth: int, offload: bool = False, name: str | None = None) -> tf.Tensor:
    """What was given here `depth` times ago in the same execution of the program; zeros before that.

    Args:
      x: the tensor to keep.
      depth: how long; below 1 the result is `x`.
      offload: accepted for compatibility.
      name: of the operation.
    """
    tensor = tf.convert_to_tensor(x)
    with tf.name_scope(name or "fifo"):
        return tensor if depth < 1 else delayed(tf.stop_gradient(tensor), depth)


def get_current_iteration_counter(name: str | None = None, lower_into_pipeline_stage: bool = False) -> tf.Tensor:
    """The number of the iteration of the innermost loop, from 0; of the micro-batch in the stages of a pipeline.

    Args:
      name: of the operation.
      lower_into_pipeline_stage: accepted for compatibility.
    """
    counter = loops.iteration_counter()
    if counter is None:
        raise UnsupportedError(
            "get_current_iteration_counter is for bodies of ipu.loops.repeat, ipu.loops.while_loop and stages of "
            "pipelining_ops.pipeline. Received: a call elsewhere. In a loop over tf.range use the number that the "
            "range gives."
        )
    return tf.identity(counter, name=name)


def remap(x: Any, name: str | None = None) -> tf.Tensor:
    """The tensor as it is; on an IPU it got a new data layout."""
    log.warning("remap is an internal operation: data layouts are chosen by the compiler.")
    return tf.identity(x, name=name)


def recompute(x: Any, name: str | None = None) -> tf.Tensor:
    """The tensor as it is: a hint of TensorFlow 1 that it may be computed again instead of stored."""
    return tf.identity(x, name=name)


def block_recompute(x: Any, name: str | None = None) -> tf.Tensor:
    """The tensor as it is: a hint of TensorFlow 1 that it is stored."""
    return tf.identity(x, name=name)


def remap_deduce(x: Any, name: str | None = None) -> tf.Tensor:
    """The tensor as it is; on an IPU it got a new data layout."""
    return tf.identity(x, name=name)
