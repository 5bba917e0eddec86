"""Operations of the IPU in a TensorFlow function: emitted as custom calls, given their meaning when lowered."""

import contextvars
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from openipu.contexts import during
from openipu.tensorflow import boundary
from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.ops import custom_calls  # noqa: F401  (imported for the meanings it registers)

# The graph that the program is traced in the middle of.
_surrounding: contextvars.ContextVar[tf.Graph | None] = contextvars.ContextVar("openipu_surrounding", default=None)


def capturing() -> bool:
    """Whether the function being traced becomes a program for the IPU; elsewhere the host runs what is traced."""
    return _surrounding.get() is not None


def surrounding() -> tf.Graph | None:
    """The graph around that of the program being traced; its loops and branches are the host's."""
    return _surrounding.get()


def captured() -> AbstractContextManager[tf.Graph | None]:
    """Trace a function that becomes a program for the IPU; entered before the function has a graph."""
    return during(_surrounding, tf.compat.v1.get_default_graph())


def emit(name: str, operands: Sequence[tf.Tensor], shape: Any, dtype: tf.DType, **config: Any) -> tf.Tensor:
    """The custom call `openipu.<name>` with one result of this shape and dtype.

    Args:
      name: of the operation; `openipu.tensorflow.ops.custom_calls` says what it computes.
      operands: what it computes from.
      shape, dtype: of the result; Keras builds layers with an unknown batch size, programs know all of it.
      **config: what else the lowering needs to know, as JSON can hold it.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            f"{name} runs in programs for the IPU only. Received: a call in eager mode. Call it inside a tf.function "
            "that is given to strategy.run, or inside a Keras model made in strategy.scope()."
        )
    if not capturing() and not tf.inside_function():
        raise UnsupportedError(
            f"{name} runs in programs for the IPU only. Received: a call in a graph of TensorFlow 1 outside of them. "
            "Call it in the function that is given to ipu_compiler.compile."
        )
    shape = tf.TensorShape(shape)
    if not shape.is_fully_defined():
        # Traced for its shapes alone; a program for the IPU is traced again, with all of them known.
        return tf.compat.v1.placeholder(dtype, shape, f"{name}_needs_static_shapes")
    return boundary.custom_call(list(operands), f"openipu.{name}", json.dumps(config), dtype, shape)


def emit_many(
    name: str, operands: Sequence[tf.Tensor], specs: Sequence[tf.TensorSpec], **config: Any
) -> list[tf.Tensor]:
    """The custom call `openipu.<name>` with results of these shapes and dtypes, all static; see `emit`."""
    shapes, dtypes = [spec.shape for spec in specs], [spec.dtype for spec in specs]
    text = json.dumps(config)
    return boundary.custom_call_with_results(list(operands), f"openipu.{name}", text, dtypes, shapes)
