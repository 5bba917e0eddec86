"""Weights with a copy on the device: when the host's copy is refreshed, and how reading it is noticed."""

import atexit
import contextlib
import copy
import copyreg
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from openipu.runtime import Resident
from openipu.torch.boundary import untracked
from openipu.torch.exceptions import Error

_LINK = "_openipu_link"

_links: "weakref.WeakSet[Link]" = weakref.WeakSet()


@atexit.register
def _destroy_all() -> None:
    # What is left of an executor when the interpreter ends, as after an error, would be taken apart in an order that
    # torch does not survive.
    for link in list(_links):
        with contextlib.suppress(Exception):
            link.destroy()


class Link:
    """The connection of a user's module to the executor that trains it.

    The classes of the module, its parameters and its buffers are replaced by subclasses that refresh the host's copy
    whenever they are used. Classes know the link and the link knows the executor by weak reference only.
    """

    def __init__(
        self, module: torch.nn.Module, residents: Callable[[], Iterable[Resident]], destroy: Callable[[], None]
    ) -> None:
        self._module = weakref.ref(module)
        self._residents = weakref.WeakMethod(residents)
        self._destroy = weakref.WeakMethod(destroy)
        self._classes: dict[type, type] = {}
        self._originals: list[tuple[weakref.ref, type]] = []
        _links.add(self)
        self.watch()

    def watch(self) -> None:
        """Replace the classes of the module, its parameters and its buffers."""
        self.adopt()
        module = self._module()
        assert module is not None
        self._originals.append((weakref.ref(module), type(module)))
        module.__class__ = _module_class(type(module), self)

    def adopt(self) -> None:
        """Watch the parameters and buffers that the module has now: `half()` and the like make new ones."""
        module = self._module()
        assert module is not None
        for tensor in module.buffers():
            if _LINK not in type(tensor).__dict__ and type(tensor) is not torch.Tensor:
                raise Error(f"All buffers must be an instance of torch.Tensor (Got {type(tensor)})")
        for tensor in (*module.parameters(), *module.buffers()):
            if _LINK not in type(tensor).__dict__:
                self._originals.append((weakref.ref(tensor), type(tensor)))
                tensor.__class__ = self._watched(type(tensor))

    @property
    def residents(self) -> list[Resident]:
        """The weights of the executor, if it has any on the device."""
        residents = self._residents()
        return list(residents()) if residents is not None else []

    @property
    def newer(self) -> bool:
        """Whether the device has weights that the host has not seen."""
        return any(resident.newer for resident in self.residents)

    @property
    def version(self) -> int:
        """Grows with every execution that changes weights."""
        return sum(resident.version for resident in self.residents)

    def refresh(self) -> None:
        """Bring the device's values home, where they are newer."""
        for resident in self.residents:
            resident.refresh_host()

    def destroy(self) -> None:
        """Destroy the executor."""
        destroy = self._destroy()
        if destroy is not None:
            destroy()

    def release(self) -> None:
        """Give all classes back."""
        for reference, original in self._originals:
            held = reference()
            if held is not None:
                held.__class__ = original
        self._originals.clear()

    def _watched(self, original: type) -> type:
        if original not in self._classes:
            names = {_LINK: weakref.ref(self), "__torch_function__": classmethod(_watch), "__module__": __name__}
            names |= {"__deepcopy__": _deepcopy_plain, "__reduce_ex__": _reduce_plain, "__repr__": _plain_repr}
            metaclass: Any = type(original)
            self._classes[original] = metaclass(f"Poptorch{original.__name__}", (original,), names)
        return self._classes[original]


def link_of(module: torch.nn.Module) -> Link | None:
    """The link of a module that is wrapped for training."""
    reference = type(module).__dict__.get(_LINK)
    return reference() if reference is not None else None


_unwrapped: "weakref.WeakKeyDictionary[torch.nn.Module, Link]" = weakref.WeakKeyDictionary()


def unwrap(module: torch.nn.Module) -> torch.nn.Module:
    """Give a module that is wrapped for training its own classes, up to date, until `rewrap`."""
    link = link_of(module)
    if link is not None:
        link.refresh()
        link.release()
        _unwrapped[module] = link
    return module


def rewrap(module: torch.nn.Module) -> torch.nn.Module:
    """Undo `unwrap`, if the module was wrapped before it."""
    link = _unwrapped.pop(module, None)
    if link is not None:
        link.watch()
    return module


@contextlib.contextmanager
def unwatched(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Give tensors their own classes for a while: what captures a module must not meet ours."""
    held: list[tuple[Any, type]] = [(tensor, type(tensor)) for tensor in tensors if _LINK in type(tensor).__dict__]
    for tensor, watched in held:
        tensor.__class__ = watched.__base__
    try:
        yield
    finally:
        for tensor, watched in held:
            tensor.__class__ = watched


def _watch(cls: type, func: Callable, types: Sequence[type], args: tuple = (), kwargs: dict | None = None) -> Any:
    for kind in types:
        reference = kind.__dict__.get(_LINK)
        link = reference() if reference is not None else None
        if link is not None:
            link.refresh()
    with untracked():
        return func(*args, **(kwargs or {}))


def _deepcopy_plain(self: torch.Tensor, memo: dict) -> torch.Tensor:
    if id(self) in memo:
        return memo[id(self)]
    value = self.detach().clone()
    made = torch.nn.Parameter(value, self.requires_grad) if isinstance(self, torch.nn.Parameter) else value
    memo[id(self)] = made
    return made


def _reduce_plain(self: torch.Tensor, protocol: int) -> Any:
    value = self.detach()
    if isinstance(self, torch.nn.Parameter):
        value = torch.nn.Parameter(value, self.requires_grad)
    return value.__reduce_ex__(protocol)


def _plain_repr(self: torch.Tensor, **kwargs: Any) -> str:
    _watch(type(self), _nothing, [type(self)])
    with unwatched([self]):
        return repr(self)


def _nothing() -> None:
    return None


def _module_class(original: Any, link: Link) -> type:
    def reduce(self: torch.nn.Module, protocol: int) -> Any:
        plain = original.__new__(original)
        plain.__dict__ = dict(self.__dict__)
        state = original.__reduce_ex__(plain, 2)[2]
        # Not the usual way to make an object: pickle refuses it for one whose class is not the one it names.
        return copyreg._reconstructor, (original, object, None), state  # type: ignore[attr-defined]

    def copy_if_needed(self: torch.nn.Module) -> None:
        """Bring trained weights to the host, if they are newer on the device."""
        own = link_of(self)
        if own is not None:
            own.refresh()

    def destroy(self: torch.nn.Module) -> None:
        """Destroy the executor that trains the module."""
        own = link_of(self)
        if own is not None:
            own.destroy()

    names = {
        _LINK: weakref.ref(link),
        "__module__": original.__module__,
        "__reduce_ex__": reduce,
        "copyWeightsToHostIfNeeded": copy_if_needed,
        "destroy": destroy,
    }
    return type(f"Poptorch{original.__name__}", (original,), names)


def shallow_copy(module: torch.nn.Module) -> torch.nn.Module:
    """A copy of its own class that shares parameters, buffers and sub-modules; its own attributes are its own."""
    return copy.copy(module)
