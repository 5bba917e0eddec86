"""Operations of the user: expressions, and functions in Python in the place of native libraries."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.ops import user_operations

__all__ = ["codelet_expression_op", "cpu_user_operation", "precompiled_user_op"]


def precompiled_user_op(
    inputs: Sequence[Any],
    library_path: str,
    gp_path: str = "",
    outs: dict[str, Any] | None = None,
    name: str = "UserOp",
    op_name: str = "Build",
    separate_gradients: bool = False,
    inputs_with_gradients: Sequence[int] | None = None,
    attributes: str | None = None,
    gradient_attributes: str | None = None,
) -> list[tf.Tensor]:
    """Calls what `openipu.tensorflow.ops.user_operations.register_user_op` registered for a library.

    Args:
      inputs: tensors.
      library_path: the library of the original; only the name of its file matters, it is not loaded.
      gp_path: accepted for compatibility.
      outs: `output_types` and `output_shapes`, a list each; None for no outputs.
      name: of the operation in the program.
      op_name: of the operation in the library.
      separate_gradients: accepted for compatibility: a registered gradient gives those of all inputs.
      inputs_with_gradients: numbers of inputs that have gradients; all by default.
      attributes, gradient_attributes: texts for the operation and for its gradient.
    """
    return user_operations.call(
        inputs, library_path, outs, name, op_name, inputs_with_gradients, attributes, gradient_attributes
    )


def cpu_user_operation(
    inputs: Sequence[Any],
    library_path: str,
    outs: dict[str, Any] | None = None,
    name: str = "UserOp",
    op_name: str = "Callback",
    separate_gradients: bool = False,
    inputs_with_gradients: Sequence[int] | None = None,
    attributes: str | None = None,
    gradient_attributes: str | None = None,
) -> list[tf.Tensor]:
    """The same for operations that run on the host: register them with `host=True`."""
    return user_operations.call(
        inputs, library_path, outs, name, op_name, inputs_with_gradients, attributes, gradient_attributes
    )


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
