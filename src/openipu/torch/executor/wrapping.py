"""The wrapping of a user's module, taken off and put on again by libraries on top of poptorch."""

from typing import Any

import torch

from openipu.torch.program.weights import rewrap, unwrap


def unwrapModelIfNecessary(model: torch.nn.Module) -> None:
    """Gives a module that is being trained, its parameters and its buffers their own classes, weights up to date."""
    unwrap(model)


def rewrapModelIfNecessary(model: torch.nn.Module) -> None:
    """Undoes `unwrapModelIfNecessary`."""
    rewrap(model)


def _restoreWrapperIfNecessary(obj: Any) -> Any:
    """The object, wrapped again if it is a module whose wrapping was taken off."""
    return rewrap(obj) if isinstance(obj, torch.nn.Module) else obj
