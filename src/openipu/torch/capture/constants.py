"""Tensors with values while a module is captured: attributes that are no buffers, and what is computed from them.

They are on the host, as in the original: what is computed from them alone is computed once, by torch itself.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from openipu.torch.boundary import FakeTensor, FunctionalTensor, no_dispatch, pytree


def is_traced(tensor: torch.Tensor) -> bool:
    """Whether a tensor stands for values on the device."""
    return isinstance(tensor, FakeTensor | FunctionalTensor)


def only(args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether the tensors among the arguments of a function, of which there must be some, all have values."""
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    return bool(tensors) and not any(is_traced(tensor) or tensor.requires_grad for tensor in tensors)


def compute(func: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """Call a function on the host, if its result is a constant: (whether it is, the result).

    A function that moves tensors to the IPU does not make a constant, nor does one that draws random numbers.
    """
    if any(is_ipu(leaf) for leaf in pytree.tree_leaves((args, kwargs))):
        return False, None
    drawn = torch.get_rng_state()
    with no_dispatch(), torch.no_grad():
        value = func(*args, **kwargs)
    if torch.equal(drawn, torch.get_rng_state()):
        return True, value
    torch.set_rng_state(drawn)
    return False, None


@contextlib.contextmanager
def kept(model: torch.nn.Module) -> Iterator[None]:
    """Give the tensors among a model's plain attributes their values back, if something writes them inside."""
    held = [
        (tensor, tensor._version, tensor.detach().clone())
        for module in model.modules()
        for tensor in vars(module).values()
        if isinstance(tensor, torch.Tensor) and not is_traced(tensor) and tensor.numel()
    ]
    try:
        yield
    finally:
        for tensor, version, value in held:
            if tensor._version != version:
                tensor.data.copy_(value)


def is_ipu(leaf: Any) -> bool:
    """Whether something names the IPU as a device."""
    if isinstance(leaf, torch.device):
        return leaf.type == "ipu"
    return isinstance(leaf, str) and (leaf == "ipu" or leaf.startswith("ipu:"))
