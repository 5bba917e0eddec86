"""Printing from a running program, layout hints, and operations on the state of loops, which are refused."""

import logging
import sys
from typing import Any

import tensorflow as tf

from openipu.tensorflow.emit import emit
from openipu.tensorflow.ipu import refused

globals().update(refused.declare(__name__))

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


def remap(x: Any, name: str | None = None) -> tf.Tensor:
    """The tensor as it is; on an IPU it got a new data layout."""
    log.warning("remap is an internal operation: data layouts are chosen by the compiler.")
    return tf.identity(x, name=name)


def remap_deduce(x: Any, name: str | None = None) -> tf.Tensor:
    """The tensor as it is; on an IPU it got a new data layout."""
    return tf.identity(x, name=name)
