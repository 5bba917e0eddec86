"""Operations of the user's own: functions in JAX or NumPy in the place of the original's native libraries."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import jax
import numpy as np
import tensorflow as tf

from openipu.errors import UnsupportedError
from openipu.tensorflow.ops.emit import emit_many
from openipu.tensorflow.stablehlo import custom_call

Function = Callable[..., Any]


@attrs.frozen(eq=False)
class UserOperation:
    """What an operation of a library computes.

    Attributes:
      function: (inputs, attributes) -> outputs.
      gradient: (gradients, outputs, inputs, attributes) -> a gradient or None for each input; None: JAX derives it.
      host: whether the functions are NumPy's and run on the host.
    """

    function: Function
    gradient: Function | None
    host: bool


_registered: dict[tuple[str, str], UserOperation] = {}


def register_user_op(
    library: str | os.PathLike, op_name: str = "Build", gradient: Function | None = None, host: bool = False
) -> Callable[[Function], Function]:
    """A decorator that gives an operation of a native library its meaning.

    Args:
      library: the library that programs name; only the name of the file matters, so `libscale.so` stands for every
        path that ends with it.
      op_name: of the operation in the library.
      gradient: takes lists of the gradients of the outputs, of the outputs and of the inputs, and the gradient
        attributes; returns a gradient, or None, for each input. Without it JAX derives the gradient.
      host: the functions take and return NumPy arrays and run on the host, as those of `cpu_user_operation`.
    """

    def register(function: Function) -> Function:
        _registered[_key(library, op_name)] = UserOperation(function, gradient, host)
        return function

    return register


def call(
    inputs: Sequence[Any],
    library_path: str,
    outs: dict[str, Any] | None,
    name: str,
    op_name: str,
    inputs_with_gradients: Sequence[int] | None,
    attributes: str | None,
    gradient_attributes: str | None,
) -> list[tf.Tensor]:
    """The outputs of a registered operation, in a program for the IPU; arguments as of `precompiled_user_op`."""
    for title, text in (("attributes", attributes), ("gradient_attributes", gradient_attributes)):
        if text is not None and not isinstance(text, str):
            raise ValueError(f"Expected {title} to be a 'str' type, but was {type(text).__name__}")
    key = _key(library_path, op_name)
    if key not in _registered:
        raise UnsupportedError(
            f"There is no implementation of the operation {op_name!r} of {library_path!r}. Native libraries for the "
            "IPU cannot be run here: write the operation in JAX and register it with "
            f"openipu.tensorflow.ops.user_operations.register_user_op({key[0]!r}, {op_name!r})."
        )
    tensors = [tf.convert_to_tensor(value) for value in inputs]
    specs = _specs(outs)
    config = {"library": key[0], "op": op_name, "attributes": attributes, "gradient_attributes": gradient_attributes}

    @tf.custom_gradient
    def operation(*tensors: tf.Tensor) -> Any:
        outputs = emit_many("user_operation", tensors, specs, **config) if specs else []

        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
            chosen = range(len(tensors)) if inputs_with_gradients is None else inputs_with_gradients
            wanted = [i for i in chosen if tensors[i].dtype.is_floating]
            kinds = [tf.TensorSpec(tensors[i].shape, tensors[i].dtype) for i in wanted]
            counts = {"outputs": len(outputs), "wanted": wanted}
            given = [*upstream, *outputs, *tensors]
            found = emit_many("user_operation_gradient", given, kinds, **config, **counts) if wanted else []
            made = dict(zip(wanted, found, strict=True))
            return [made.get(i) for i in range(len(tensors))]

        return outputs, gradient

    with tf.name_scope(name):
        return list(operation(*tensors))


def _specs(outs: dict[str, Any] | None) -> list[tf.TensorSpec]:
    if not outs:
        return []
    for entry in ("output_types", "output_shapes"):
        if entry not in outs:
            raise ValueError(
                f"outs must have the entries 'output_types' and 'output_shapes'. Received: {sorted(outs)}."
            )
    pairs = zip(outs["output_shapes"], outs["output_types"], strict=True)
    return [tf.TensorSpec(shape, dtype) for shape, dtype in pairs]


def _key(library: str | os.PathLike, op_name: str) -> tuple[str, str]:
    return Path(library).name, op_name


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, list | tuple) else [results]


@custom_call("openipu.user_operation")
def _user_operation(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    found = _registered[config["library"], config["op"]]
    if found.host:
        return _on_host(lambda *values: found.function(list(values), config["attributes"]), kinds, operands)
    return _checked(config, found.function(list(operands), config["attributes"]), kinds)


@custom_call("openipu.user_operation_gradient")
def _user_operation_gradient(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    found = _registered[config["library"], config["op"]]
    count, wanted = config["outputs"], config["wanted"]
    upstream, inputs = operands[:count], operands[2 * count :]
    attributes = config["gradient_attributes"]
    if found.gradient is not None:

        def chosen(*values: Any) -> list[Any]:
            parts = list(values[:count]), list(values[count : 2 * count]), list(values[2 * count :])
            made = _listed(found.gradient(*parts, attributes))  # pyright: ignore[reportOptionalCall]
            return [
                np.zeros(kinds[n].shape, kinds[n].dtype) if made[i] is None else made[i] for n, i in enumerate(wanted)
            ]

        return _on_host(chosen, kinds, operands) if found.host else _checked(config, chosen(*operands), kinds)
    if found.host:
        raise UnsupportedError(
            f"The operation {config['op']!r} of {config['library']!r} runs on the host and has no gradient. Give "
            "register_user_op one with gradient=."
        )

    def forward(*floats: Any) -> list[Any]:
        values = list(inputs)
        for i, value in zip(wanted, floats, strict=True):
            values[i] = value
        return _listed(found.function(values, config["attributes"]))

    _, pull = jax.vjp(forward, *(inputs[i] for i in wanted))
    return list(pull(list(upstream)))


def _on_host(function: Function, kinds: tuple, operands: list) -> list:
    def call(*values: Any) -> tuple[np.ndarray, ...]:
        made = _listed(function(*(np.asarray(value) for value in values)))
        return tuple(np.asarray(m, k.dtype).reshape(k.shape) for m, k in zip(made, kinds, strict=True))

    shapes = tuple(jax.ShapeDtypeStruct(k.shape, k.dtype) for k in kinds)
    return list(jax.pure_callback(call, shapes, *operands, vmap_method="sequential"))


def _checked(config: dict[str, Any], results: Any, kinds: tuple) -> list:
    made = [jax.numpy.asarray(value) for value in _listed(results)]
    found = [(tuple(m.shape), str(m.dtype)) for m in made]
    expected = [(tuple(k.shape), str(np.dtype(k.dtype))) for k in kinds]
    if found != expected:
        raise ValueError(
            f"The operation {config['op']!r} of {config['library']!r} returned other outputs than the program says. "
            f"Expected: {expected}. Received: {found}."
        )
    return made
