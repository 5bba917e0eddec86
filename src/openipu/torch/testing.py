"""A comparison of nested results, for the tests of programs."""

from typing import Any

import torch


def allclose(ref: Any, other: Any) -> bool:
    """Whether two tensors, or two equally built tuples or lists of them, agree.

    Args:
      ref: a tensor, or a tuple or list of tensors, tuples and lists.
      other: what to compare it with.
    """
    if isinstance(ref, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.allclose(ref, other)
    if type(ref) is not type(other):
        return False
    if isinstance(ref, tuple | list):
        return len(ref) == len(other) and all(allclose(a, b) for a, b in zip(ref, other, strict=True))
    raise TypeError(f"allclose compares tensors, tuples and lists. Received: {type(ref)}.")
