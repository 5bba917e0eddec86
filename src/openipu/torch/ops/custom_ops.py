"""Operations of the user's own: found by domain and name, implemented in JAX."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import torch

from openipu.torch.aten.registry import lowering
from openipu.torch.exceptions import Error, UnsupportedError
from openipu.torch.tracing import isRunningOnIpu

Implementation = Callable[[Sequence[jax.Array], Mapping[str, Any]], Sequence[jax.Array]]
_implementations: dict[tuple[str, str], Implementation] = {}
_writes: dict[tuple[str, str], Mapping[int, int]] = {}


def register_custom_op(
    domain: str, name: str, writes: Mapping[int, int] | None = None
) -> Callable[[Implementation], Implementation]:
    """A decorator that gives a custom operation its meaning.

    The function takes JAX arrays and the attributes and returns arrays; its gradient is what JAX derives, or what
    `jax.custom_vjp` says.

    Args:
      domain, name: what programs pass to `poptorch.custom_op`.
      writes: numbers of results, and of the inputs they are written into; such an operation has no gradient.
    """

    def register(implementation: Implementation) -> Implementation:
        _implementations[domain, name] = implementation
        _writes[domain, name] = dict(writes or {})
        return implementation

    return register


@torch.library.custom_op("openipu::custom", mutates_args=())
def _custom(
    inputs: Sequence[torch.Tensor], domain: str, name: str, attributes: str, like: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """A custom operation; on the host its results are zeros."""
    return [torch.zeros_like(tensor) for tensor in like]


@_custom.register_fake
def _custom_fake(inputs: Any, domain: str, name: str, attributes: str, like: Any) -> list[torch.Tensor]:
    return [torch.empty_like(tensor) for tensor in like]


@lowering("openipu::custom")
def _custom_lowering(inputs: Any, domain: str, name: str, attributes: str, like: Any) -> tuple:
    return tuple(_implementations[domain, name](list(inputs), json.loads(attributes)))


def custom_op(
    inputs: Sequence[torch.Tensor],
    name: str,
    domain: str,
    domain_version: int,
    example_outputs: Sequence[torch.Tensor],
    attributes: dict[str, Any] | None = None,
) -> list[torch.Tensor]:
    """Calls an operation registered by `openipu.torch.ops.custom_ops.register_custom_op`.

    Args:
      inputs: its inputs.
      name, domain: what it is registered as.
      domain_version: not used.
      example_outputs: tensors with the shapes and types of its results.
      attributes: numbers, texts or lists of them.

    Returns:
      Its results; zeros on the host.
    """
    checked = _checked(attributes or {})
    if not isRunningOnIpu():
        return [torch.zeros_like(tensor) for tensor in example_outputs]
    if (domain, name) not in _implementations:
        raise UnsupportedError(
            f"There is no implementation of the custom operation {name!r} of domain {domain!r}. Libraries of the "
            "original cannot be loaded: write it in JAX and register it with "
            "openipu.torch.ops.custom_ops.register_custom_op."
        )
    like = [torch.empty_like(tensor) for tensor in example_outputs]
    writes = _writes[domain, name]
    with torch.set_grad_enabled(torch.is_grad_enabled() and not writes):
        made = list(_custom(list(inputs), domain, name, json.dumps(checked), like))
        for result, number in writes.items():
            inputs[number].copy_(made[result])
    return made


def _checked(attributes: dict[str, Any]) -> dict[str, Any]:
    for key, value in attributes.items():
        if not isinstance(key, str):
            raise ValueError("All attribute keys must be strings.")
        many = list(value) if isinstance(value, list | tuple) else [value]
        if not many or any(type(item) not in (float, int, bool, str) for item in many):
            raise ValueError(
                "Attribute values must be floats, ints, strings or a list/tuple of float, ints of strings."
            )
        if len({type(item) for item in many}) > 1:
            raise ValueError("The types in a list/tuple attribute must all be the same.")
        for item in (key, *many):
            _check_one(item)
    return attributes


def _check_one(item: Any) -> None:
    if isinstance(item, str) and not item.isascii():
        raise ValueError(f"{item} contains non-ASCII characters.")
    if isinstance(item, float) and np.isfinite(item) and abs(item) > float(np.finfo(np.float32).max):
        raise Error(f"{item} is too {'high' if item > 0 else 'low'} for a Popart float attribute.")
