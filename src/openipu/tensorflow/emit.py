"""Operations of the IPU in a TensorFlow function: emitted as custom calls, given their meaning when lowered."""

import json
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from openipu.tensorflow import custom_calls  # noqa: F401  (imported for the meanings it registers)


def emit(name: str, operands: Sequence[tf.Tensor], shape: Any, dtype: tf.DType, **config: Any) -> tf.Tensor:
    """The custom call `openipu.<name>` with one result of this shape and dtype.

    Args:
      name: of the operation; `openipu.tensorflow.custom_calls` says what it computes.
      operands: what it computes from.
      shape, dtype: of the result; Keras builds layers with an unknown batch size, programs know all of it.
      **config: what else the lowering needs to know, as JSON can hold it.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            f"{name} runs in programs for the IPU only. Received: a call in eager mode. Call it inside a tf.function "
            "that is given to strategy.run, or inside a Keras model made in strategy.scope()."
        )
    shape = tf.TensorShape(shape)
    if not shape.is_fully_defined():
        # Traced for its shapes alone; a program for the IPU is traced again, with all of them known.
        return tf.compat.v1.placeholder(dtype, shape, f"{name}_needs_static_shapes")
    # The newer XlaCustomCallV2 fixes memory layouts as well, which belong to the compiler here.
    return gen_xla_ops.xla_custom_call(list(operands), f"openipu.{name}", json.dumps(config), dtype, shape)
