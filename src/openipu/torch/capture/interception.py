"""Replacement, while a module is captured, of the few torch functions that `torch.export` cannot trace."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from openipu.torch.ops import ctc


class Interception(TorchFunctionMode):
    """Redirects functions to equivalents that leave operations in the graph."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        replacement = _REPLACEMENTS.get(func, func)
        return replacement(*args, **(kwargs or {}))


def _gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """torch's own refuses negative variances, which means looking at values."""
    if not isinstance(var, torch.Tensor):
        var = var * torch.ones_like(input)
    if var.size() != input.size() and input.size()[:-1] == var.size():
        var = var.unsqueeze(-1)
    # The bound is not differentiated: the gradient passes as if the variance were what it is raised to.
    var = var + (var.clamp(min=eps) - var).detach()
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


_REPLACEMENTS: dict[Any, Callable] = {
    # Reading `.data` leaves no trace in the graph, though it cuts the gradient as `detach` does.
    torch.Tensor.data.__get__: torch.Tensor.detach,  # type: ignore[attr-defined]
    torch.nn.functional.ctc_loss: ctc.ctc_loss,
    torch.nn.functional.gaussian_nll_loss: _gaussian_nll_loss,
    torch.ctc_loss: ctc.torch_ctc_loss,
}
