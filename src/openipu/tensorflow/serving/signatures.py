"""What the functions of an exported model take: given, or found in a dataset or in the function itself."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def of_step(
    function: Callable, name: str, signature: Sequence[tf.TensorSpec] | None, dataset: tf.data.Dataset | None = None
) -> list[tf.TensorSpec]:
    """The specs of a function's arguments, with the names of its parameters.

    Args:
      function: the function.
      name: what it is called in messages, such as `predict_step`.
      signature: given by the user.
      dataset: whose elements it takes.
    """
    if signature is not None and dataset is not None:
        raise ValueError(f"Both `{name}_signature` and `input_dataset` cannot be provided. Provide one of them.")
    if signature is not None:
        specs = _checked(name, signature)
    elif dataset is not None:
        element: Any = dataset.element_spec
        specs = list(element) if isinstance(element, tuple) else tf.nest.flatten(element)
    else:
        found = getattr(function, "input_signature", None)
        if not found:
            raise ValueError(
                f"The types of the arguments of {name} are not known. Provide `{name}_signature`, or make {name} a "
                f"tf.function with an `input_signature`{' or provide `input_dataset`' * (name == 'predict_step')}."
            )
        specs = list(found)
    for spec in specs:
        if not spec.shape.is_fully_defined() and name == "predict_step":
            raise ValueError(f"The shapes of the arguments of {name} must be static. Received: {spec}.")
    return _named(function, name, specs)


def check_handed_over(results: Sequence[Any], specs: Sequence[tf.TensorSpec], giver: str, taker: str) -> None:
    """What one function returns is what the next takes."""
    if len(results) != len(specs):
        raise ValueError(f"{giver} returned {len(results)} tensors, but {taker} takes {len(specs)}.")
    for place, (result, spec) in enumerate(zip(results, specs, strict=True)):
        if result.dtype != spec.dtype or not spec.shape.is_compatible_with(result.shape):
            raise ValueError(
                f"{giver} returned Tensor at postion {place} does not match required {taker} TensorSpec. "
                f"Expected: {spec}. Received: shape {result.shape}, dtype {result.dtype.name}."
            )


def _checked(name: str, signature: Any) -> list[tf.TensorSpec]:
    argument = f"`{name}_signature"
    if not isinstance(signature, tuple | list):
        raise TypeError(f"{argument}` must be an instance of tuple or list. Received: {type(signature).__name__}.")
    if not signature:
        raise ValueError(f"{argument}` must be not empty.")
    for place, spec in enumerate(signature):
        if not isinstance(spec, tf.TensorSpec):
            raise TypeError(f"{argument}[{place}]` is not an instance of TensorSpec. Received: {spec!r}.")
    return list(signature)


def _named(function: Callable, name: str, specs: list[tf.TensorSpec]) -> list[tf.TensorSpec]:
    try:
        parameters = list(inspect.signature(getattr(function, "python_function", function)).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    open_ended = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    needed = sum(p.default is p.empty for p in parameters if p.name in names)
    if parameters and not (needed <= len(specs) and (open_ended or len(specs) <= len(names))):
        raise ValueError(
            f"Length of input_signature does not match the number of {name} arguments. "
            f"Received: {len(specs)} specs for the arguments {names}."
        )
    names = [*names[: len(specs)], *(spec.name or f"input_{i}" for i, spec in enumerate(specs) if i >= len(names))]
    return [tf.TensorSpec(spec.shape, spec.dtype, n) for spec, n in zip(specs, names, strict=True)]
