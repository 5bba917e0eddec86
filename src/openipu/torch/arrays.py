"""Tensors as arrays and arrays as tensors, without that whoever watches a tensor notices."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import torch

from openipu.runtime import Resident
from openipu.torch.boundary import untracked

# NumPy's type, not JAX's name of it: to compare with that, NumPy calls Python and forgets the exception of a signal.
_BFLOAT16 = np.dtype(jnp.bfloat16)


def resident_of(tensor: torch.Tensor) -> Resident:
    """A tensor of the user's with a copy on the device."""
    return Resident(read=lambda: to_array(tensor), write=lambda value: assign(tensor, value))


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """The values of a tensor, without noticing that it is read."""
    with untracked():
        held = tensor.detach().cpu()
        if held.dtype == torch.bfloat16:
            return held.contiguous().view(torch.int16).numpy().view(_BFLOAT16)
        return held.numpy()


def to_tensor(value: Any) -> torch.Tensor:
    """A tensor of its own memory with the values of an array."""
    value = np.asarray(value)
    if value.dtype == _BFLOAT16:
        return torch.from_numpy(np.array(value).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(value))


def assign(tensor: torch.Tensor, value: np.ndarray) -> None:
    """Write values into a tensor, without noticing that it is used."""
    with untracked(), torch.no_grad():
        tensor.data.copy_(to_tensor(value))
