"""Loops, branches and calls to the host inside a captured module."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch

from openipu.torch.arrays import to_array, to_tensor
from openipu.torch.aten.registry import lowering
from openipu.torch.boundary import no_dispatch, while_loop
from openipu.torch.exceptions import Error
from openipu.torch.tracing import isRunningOnIpu, trains


def for_loop(count: int, body: Callable, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Calls a function again and again on its own results; once on the host. For inference only.

    Args:
      count: how many times.
      body: takes as many tensors as there are inputs and returns as many.
      inputs: what it is called with first.
    """
    _check_list(inputs, "poptorch.for_loop expects input tensors (inputs) to be a list of tensors.")
    if not isRunningOnIpu():
        return _listed(body(*inputs))
    _check_inference("for_loop")

    def again(index: torch.Tensor, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = _listed(body(*[value.clone() for value in values]))
        return (index + 1, *(value.clone() for value in made))

    start = torch.zeros((), dtype=torch.int32, device="cpu")
    return list(while_loop(lambda index, *_: index < count, again, (start, *(value.clone() for value in inputs))))[1:]


def cond(
    condition: torch.Tensor,
    then_body: Callable,
    then_inps: list[torch.Tensor],
    else_body: Callable,
    else_inps: list[torch.Tensor],
) -> list[torch.Tensor]:
    """Calls one of two functions, as a tensor says. For inference only.

    Args:
      condition: a boolean tensor of one element.
      then_body, then_inps: called if it is true.
      else_body, else_inps: called if it is false.
    """
    for inputs in (then_inps, else_inps):
        _check_list(inputs, "poptorch.cond expects then_inps and else_inps tensors to be a list of tensors.")
    if not isRunningOnIpu():
        return _listed(then_body(*then_inps) if condition else else_body(*else_inps))
    _check_inference("cond")
    count = len(then_inps)

    def branch(body: Callable, part: slice) -> Callable:
        return lambda *values: tuple(v.clone() for v in _listed(body(*[value.clone() for value in values[part]])))

    operands = tuple(value.clone() for value in (*then_inps, *else_inps))
    then, other = branch(then_body, slice(0, count)), branch(else_body, slice(count, None))
    try:
        return list(torch.cond(condition.reshape(()).bool(), then, other, operands))
    except RuntimeError as error:
        if "merging two branches" not in str(error):
            raise
        raise Error(
            "poptorch.cond expects both bodies to return the same number of tensors, of the same shapes and types. "
            "Reshape the results of one of them."
        ) from error


def _listed(value: Any) -> list[torch.Tensor]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _check_list(inputs: Any, text: str) -> None:
    if not isinstance(inputs, list):
        raise ValueError(f"{text} (Object is not list)")
    for index, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"{text} (Object contained in list at index {index} is not torch.tensor)")


def _check_inference(name: str) -> None:
    if trains():
        raise Error(f"poptorch.{name}() is only supported in inference.")


_host_calls: list[Callable] = []


@torch.library.custom_op("openipu::host_call", mutates_args=())
def _host_call(inputs: Sequence[torch.Tensor], number: int, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """A call of a Python function on the host."""
    return [torch.zeros_like(tensor) for tensor in like]


@_host_call.register_fake
def _host_call_fake(inputs: Any, number: int, like: Any) -> list[torch.Tensor]:
    return [torch.empty_like(tensor) for tensor in like]


@lowering("openipu::host_call")
def _host_call_lowering(inputs: Any, number: int, like: Any) -> tuple:
    function = _host_calls[number]

    def call(*arrays: Any) -> tuple[np.ndarray, ...]:
        with torch.no_grad():
            made = _listed(function(*[to_tensor(array) for array in arrays]))
        return tuple(np.array(to_array(value)) for value in made)

    shapes = tuple(jax.ShapeDtypeStruct(value.shape, value.dtype) for value in like)
    return tuple(jax.pure_callback(call, shapes, *inputs, vmap_method="sequential"))


class CPU:
    """A Python function that a captured module calls on the host, once for each micro-batch. For inference only.

    Args:
      layer_to_call: the function or module.
      ID: a name for it.
    """

    def __init__(self, layer_to_call: Callable, ID: str) -> None:
        self._layer_to_call = layer_to_call
        self._ID = ID
        if isinstance(layer_to_call, torch.nn.Module):
            layer_to_call.requires_grad_(False)

    def __call__(self, *input: torch.Tensor, **kwargs: Any) -> Any:
        """Call the function: at once on the host, at every execution on the IPU."""
        if not isRunningOnIpu():
            return self._layer_to_call(*input, **kwargs)
        _check_inference("CPU")

        def call(*tensors: torch.Tensor) -> Any:
            return self._layer_to_call(*tensors, **kwargs)

        _host_calls.append(call)
        # Outside of the capture, which would record what the function does rather than its shapes.
        shapes = [(tuple(tensor.shape), tensor.dtype) for tensor in input]
        with no_dispatch(), torch.no_grad():
            made = call(*[torch.zeros(shape, dtype=dtype, device="cpu") for shape, dtype in shapes])
            like_shapes = [(tuple(value.shape), value.dtype) for value in _listed(made)]
        like = [torch.empty(shape, dtype=dtype, device="cpu") for shape, dtype in like_shapes]
        results = _host_call(list(input), len(_host_calls) - 1, like)
        return results[0] if isinstance(made, torch.Tensor) else list(results)

    def execute(self) -> None:
        """Without effect: the call happens where the results are needed."""

    def registerPersistentData(self) -> None:
        """Without effect: results need no place of their own."""
