"""Access to gradients on their way back through the program."""

from typing import Any

from openipu.tensorflow.ops.gradient_capture import watched

__all__ = ["capture_upstream_gradients"]


def capture_upstream_gradients(args: Any, tag: str = "") -> Any:
    """The tensors as they are; the gradients that reach them are kept by the innermost capture context.

    Args:
      args: any nest of tensors.
      tag: the name the gradients are kept under.
    """
    return watched(args, tag)
