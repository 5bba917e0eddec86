"""Operations of the user: expressions run here, native libraries for the IPU are refused."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from openipu.tensorflow.ipu import refused

globals().update(refused.declare(__name__))


def codelet_expression_op(vertex_expression: Callable, *args: Any) -> tf.Tensor:
    """An element-wise expression of tensors, such as `lambda x, y: x * x + y`; it has no gradient.

    Args:
      vertex_expression: a function of as many arguments as follow.
      *args: tensors.

    Returns:
      A tensor of the dtype of the first argument.
    """
    tensors = [tf.stop_gradient(tf.convert_to_tensor(arg)) for arg in args]
    if not tensors:
        raise ValueError("codelet_expression_op needs at least one tensor after the expression. Received: none.")
    return tf.cast(vertex_expression(*tensors), tensors[0].dtype)
