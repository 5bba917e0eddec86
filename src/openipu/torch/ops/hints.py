"""Operations that compute nothing new: the loss is named, or the compiler is told how to do something."""

from collections.abc import Callable
from typing import Any

import torch

from openipu.torch.enums import MatMulSerializationMode, OverlapMode
from openipu.torch.exceptions import Error
from openipu.torch.ops import overlap
from openipu.torch.ops.loss import mark_loss
from openipu.torch.ops.recomputation import mark_checkpoint
from openipu.torch.structures import leaves, map_leaves
from openipu.torch.tracing import isRunningOnIpu


def identity_loss(x: torch.Tensor, reduction: str) -> torch.Tensor:
    """Reduces a tensor and marks the result as the loss.

    Args:
      x: the tensor.
      reduction: "sum", "mean" or "none".
    """
    assert reduction in ("sum", "mean", "none"), "Unsupported reduction type!"
    value = x.clone() if reduction == "none" else x.sum() if reduction == "sum" else x.mean()
    return mark_loss(value) if isRunningOnIpu() else value


def nop(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself."""
    return _tensor(tensor, "nop")


def recomputationCheckpoint(*tensors: Any) -> Any:
    """Marks tensors to be kept for the backward pass; returns them as they were given."""
    if not all(isinstance(leaf, torch.Tensor) for leaf in leaves(tensors)):
        raise ValueError("All inputs must be tensors")
    if isRunningOnIpu():
        tensors = map_leaves(mark_checkpoint, tensors)
    return tensors[0] if len(tensors) == 1 else tensors


def serializedMatMul(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    mode: MatMulSerializationMode,
    factor: int = 0,
    keep_precision: bool = False,
) -> torch.Tensor:
    """A matrix product that an IPU computes in slices to save memory.

    Args:
      lhs, rhs: the factors.
      mode: the dimension that is cut.
      factor: into how many slices.
      keep_precision: whether slices are added in the precision of partial results.
    """
    assert isinstance(keep_precision, bool), f"keep_precision must be a bool. Received: {type(keep_precision)}"
    assert isinstance(factor, int), f"factor must be an int. Received: {type(factor)}"
    assert isinstance(mode, MatMulSerializationMode), (
        f"mode must be a poptorch.MatMulSerializationMode. Received: {type(mode)}"
    )
    sizes = {
        MatMulSerializationMode.InputChannels: lhs.shape[-2] if lhs.dim() > 1 else 1,
        MatMulSerializationMode.ReducingDim: lhs.shape[-1],
        MatMulSerializationMode.OutputChannels: rhs.shape[-1],
    }
    if factor and mode in sizes and sizes[mode] % factor:
        raise Error(f"serializedMatMul: factor must divide the dimension that is cut: {sizes[mode]} % {factor} != 0.")
    return torch.matmul(lhs, rhs)


def set_available_memory(tensor: torch.Tensor, available_memory_proportion: float) -> torch.Tensor:
    """The tensor itself; says how much memory the operation that made it may use."""
    return _tensor(tensor, "set_available_memory")


def set_overlap_for_input(input_tensors: Any, mode: OverlapMode) -> Any:
    """Inputs as they were given; says that their upload may overlap with computation."""
    return _overlapped(input_tensors, mode, overlap.mark_input)


def set_overlap_for_output(output_tensors: Any, mode: OverlapMode) -> Any:
    """Outputs as they were given; says that their download may overlap with computation."""
    return _overlapped(output_tensors, mode, overlap.mark_output)


def _overlapped(tensors: Any, mode: OverlapMode, mark: Callable) -> Any:
    assert isinstance(mode, OverlapMode), f"mode must be a poptorch.OverlapMode. Received: {type(mode)}"
    if mode is OverlapMode.NoOverlap or not isRunningOnIpu():
        return tensors
    return map_leaves(lambda leaf: mark(leaf) if isinstance(leaf, torch.Tensor) else leaf, tensors)


def _tensor(value: Any, name: str) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise Error(f"{name} must take a torch.tensor argument. {type(value)} is not supported.")
    return value
