"""Slices whose start is only known while the program runs."""

from typing import Any

import torch

from openipu.torch.exceptions import Error


def dynamic_slice(tensor: torch.Tensor, dim: int, start: torch.Tensor, size: int, step: int) -> torch.Tensor:
    """Every `step`-th element of `size` along a dimension, from a start that is a tensor.

    A slice that runs over the end goes on at the beginning.
    """
    _check(tensor, dim, start, size)
    if not isinstance(step, int):
        raise Error(f"dynamic_slice: step must be an int. Received: {type(step)}")
    if size < 0:
        raise Error("Taking a slice of a tensor with the end less than the start is not supported.")
    if size == 0:
        raise Error("The start and end of a slice must be different.")
    if step < 1:
        raise Error("Slicing step must be at least 1")
    length = tensor.shape[dim]
    if length % size:
        raise Error(f"The size of the slice ({size}) must be a factor of the slicing dimension ({length}).")
    return torch.index_select(tensor, dim, _places(start, size, step, length))


def dynamic_update(input: torch.Tensor, src: torch.Tensor, dim: int, start: torch.Tensor, size: int) -> torch.Tensor:
    """A copy of `input` with `src` written along a dimension, from a start that is a tensor."""
    _check(input, dim, start, size)
    if not isinstance(src, torch.Tensor):
        raise Error(f"dynamic_update: src must be a torch.Tensor. Received: {type(src)}")
    if input.dim() != src.dim():
        raise Error(f"input and src tensors must have same dimensionality. ({input.dim()}) vs ({src.dim()})")
    if input.dtype != src.dtype:
        raise Error(f"input and src tensors must have same dtype. ({input.dtype}) vs ({src.dtype})")
    return input.index_copy(dim, _places(start, size, 1, input.shape[dim]), src)


def _places(start: torch.Tensor, size: int, step: int, length: int) -> torch.Tensor:
    return (start.reshape(()).long() + torch.arange(0, size, step, device=start.device)) % length


def _check(tensor: Any, dim: Any, start: Any, size: Any) -> None:
    for name, value, kind in (
        ("tensor", tensor, torch.Tensor), ("dim", dim, int), ("start", start, torch.Tensor), ("size", size, int),
    ):  # fmt: skip
        if not isinstance(value, kind):
            raise Error(f"{name} must be of type {kind.__name__}. Received: {type(value)}")
    if start.is_floating_point():
        raise Error(f"start must be an integer tensor. Received: {start.dtype}")
