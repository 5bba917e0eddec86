"""Contexts that say something about the operations inside; none of them changes what is computed."""

from typing import Any, Self

import torch

from openipu.torch.enums import MultiConvPlanType
from openipu.torch.exceptions import Error
from openipu.torch.tracing import isRunningOnIpu

attributes_lists: list[dict[str, Any]] = []


def accessAttributes(attribute_id_str: str) -> dict[str, Any] | None:
    """The attributes of a custom operation, by their number as text."""
    index = int(attribute_id_str)
    return attributes_lists[index] if 0 <= index < len(attributes_lists) else None


class _Scope:
    """A context that does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        return None


class NameScope(_Scope):
    """Prefixes the names of operations inside."""

    def __init__(self, name: str) -> None:
        assert isinstance(name, str), f"The name of a scope must be a str. Received: {type(name)}"
        self.name = name


class Attribute(_Scope):
    """Attaches attributes to the operations inside; tuning only."""

    def __init__(self, **kwargs: dict[str, str]) -> None:
        self._attributes = kwargs


class MultiConv:
    """Groups the convolutions inside, so that an IPU computes them together."""

    _active = False

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}
        self._convolutions = _Convolutions()

    def availableMemoryProportions(self, value: float | tuple[float, ...] | list[float]) -> Self:
        """The share of memory of each convolution."""
        many = value if isinstance(value, tuple | list) else (value,)
        assert all(isinstance(v, float) and 0 < v <= 1 for v in many), "Invalid available memory proportion!"
        return self._set("availableMemoryProportions", many)

    def partialsTypes(self, value: Any) -> Self:
        """The type of partial sums of each convolution."""
        many = value if isinstance(value, tuple | list) else (value,)
        if any(v not in (torch.float, torch.half) for v in many):
            raise ValueError("Invalid partials types. Expecting torch.float or torch.half")
        return self._set("partialsTypes", many)

    def enableConvDithering(self, value: Any) -> Self:
        """Whether convolutions start on different tiles."""
        many = value if isinstance(value, tuple | list) else (value,)
        assert all(isinstance(v, bool) for v in many), "enableConvDithering takes a bool or several"
        return self._set("enableConvDithering", many)

    def planType(self, value: MultiConvPlanType) -> Self:
        """How the convolutions run."""
        assert isinstance(value, MultiConvPlanType), "Invalid plan type!"
        return self._set("planType", value)

    def perConvReservedTiles(self, value: int) -> Self:
        """Tiles that each convolution gets at least."""
        assert isinstance(value, int), f"perConvReservedTiles takes an int. Received: {type(value)}"
        return self._set("perConvReservedTiles", value)

    def cycleBackOff(self, value: float) -> Self:
        """How much slower than the best plan is acceptable."""
        assert isinstance(value, float), f"cycleBackOff takes a float. Received: {type(value)}"
        return self._set("cycleBackOff", value)

    def _set(self, name: str, value: Any) -> Self:
        self._settings[name] = value
        return self

    def __enter__(self) -> Self:
        if isRunningOnIpu():
            if MultiConv._active:
                raise Error("Nested poptorch.MultiConv is not supported")
            MultiConv._active = True
            self._convolutions.found = 0
            self._convolutions.__enter__()
        return self

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        if isRunningOnIpu():
            MultiConv._active = False
            self._convolutions.__exit__(type, value, traceback)
            if value is None and not self._convolutions.found:
                raise Error("Unexpected end_multi_conv: there is no convolution inside the context")


class _Convolutions(torch.overrides.TorchFunctionMode):
    """Counts convolutions."""

    found = 0

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.found += getattr(func, "__name__", "").startswith("conv")
        return func(*args, **(kwargs or {}))
