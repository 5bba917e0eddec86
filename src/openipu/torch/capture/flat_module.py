"""A user's module behind an entrance of flat tensors, so that any structure of arguments and results is captured."""

import warnings
from collections.abc import Iterator
from typing import Any

import torch

from openipu.torch import structures
from openipu.torch.boundary import BatchNorm, FakeTensor
from openipu.torch.capture import traced_tensors
from openipu.torch.capture.semantics import IpuSemantics
from openipu.torch.exceptions import Error
from openipu.torch.ops import blocks

PREFIX = "model."


class _Returned:
    """What a module returned while it was captured, and where its tensors are in the flat result.

    An object of its own, because `torch.export` takes back what a module assigns to its attributes.
    """

    def __init__(self) -> None:
        self.result: Any = None
        self.places: list[int | None] = []


class FlatModule(torch.nn.Module):
    """Takes flat tensors, calls the user's module with its own arguments, returns flat tensors."""

    def __init__(self, model: torch.nn.Module, args: tuple, kwargs: dict[str, Any], strided: bool = False) -> None:
        super().__init__()
        self.model = model
        self._strided = strided
        # What captures a module sets its training flag by the outermost one.
        self.training = model.training
        self._arguments = (args, kwargs)
        self._returned = _Returned()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = iter(tensors)
        leaves = [next(given) if is_input(leaf) else leaf for leaf in structures.leaves(self._arguments)]
        args, kwargs = structures.rebuild(self._arguments, leaves)
        before = _bindings(self.model)
        # Only here: what captures the module also uses torch functions, before and after.
        with blocks.during_forward(), IpuSemantics(self._strided), traced_tensors.on_ipu():
            result = self.model(*args, **kwargs)
        _check_bindings(before, _bindings(self.model), self.model)
        flat: list[torch.Tensor] = []
        places: list[int | None] = []
        for leaf in structures.leaves(result):
            if isinstance(leaf, FakeTensor):
                places.append(len(flat))
                flat.append(leaf)
                continue
            places.append(None)
        self._returned.result, self._returned.places = result, places
        return tuple(flat)

    def warn_of_constants(self) -> None:
        """Warn of results the device has not computed: they are returned as they are, whatever the output mode."""
        leaves = zip(structures.leaves(self._returned.result), self._returned.places, strict=True)
        if any(place is None and isinstance(leaf, torch.Tensor) for leaf, place in leaves):
            warnings.warn("Output expected to be on the IPU but is on cpu", stacklevel=2)

    def restore(self, flat: list[torch.Tensor]) -> Any:
        """The module's result, with the given tensors."""
        returned = self._returned
        kept = structures.leaves(returned.result)
        leaves = [old if place is None else flat[place] for old, place in zip(kept, returned.places, strict=True)]
        return structures.rebuild(returned.result, leaves)


def is_input(leaf: Any) -> bool:
    """Whether a leaf of the arguments is fed at every call, rather than compiled in."""
    return isinstance(leaf, torch.Tensor)


def _bindings(model: torch.nn.Module) -> dict[tuple[str, str], torch.Tensor]:
    return {(kind, name): tensor for kind, name, tensor in _named(model)}


def _named(model: torch.nn.Module) -> Iterator[tuple[str, str, torch.Tensor]]:
    for name, tensor in model.named_parameters(remove_duplicate=False):
        yield "Parameter", name, tensor
    for name, tensor in model.named_buffers(remove_duplicate=False):
        yield "Buffer", name, tensor


def _check_bindings(before: dict, after: dict, model: torch.nn.Module) -> None:
    for (kind, name), tensor in before.items():
        if isinstance(model.get_submodule(name.rpartition(".")[0]), BatchNorm):
            continue
        if (kind, name) not in after:
            raise Error(f"{kind} {name} is removed from the model when calling the forward method.")
        if after[kind, name] is not tensor:
            raise Error(
                f"{kind} {name} is reassigned within the model when calling the forward method. This is not supported. "
                f"Consider using self.{name}.copy_(src) to copy data from a source tensor, where src is the name of "
                "the source tensor."
            )
