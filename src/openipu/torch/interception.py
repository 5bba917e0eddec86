"""Replacement, while a module is captured, of the few torch functions that `torch.export` cannot trace."""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from openipu.torch import ctc


class Interception(TorchFunctionMode):
    """Redirects functions to equivalents that leave operations in the graph."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        replacement = _REPLACEMENTS.get(func, func)
        return replacement(*args, **(kwargs or {}))


_REPLACEMENTS: dict[Any, Callable] = {
    # Reading `.data` leaves no trace in the graph, though it cuts the gradient as `detach` does.
    torch.Tensor.data.__get__: torch.Tensor.detach,  # type: ignore[attr-defined]
    torch.nn.functional.ctc_loss: ctc.ctc_loss,
    torch.ctc_loss: ctc.torch_ctc_loss,
}
