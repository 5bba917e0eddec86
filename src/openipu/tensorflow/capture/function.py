"""Capture a Python function of TensorFlow operations as a pure function on arrays."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import jax
import numpy as np
import tensorflow as tf

from openipu.program import Limit
from openipu.tensorflow.boundary import raw_handle, stablehlo
from openipu.tensorflow.capture.graphs import Graph
from openipu.tensorflow.capture.ranges import limits
from openipu.tensorflow.capture.variables import by_handle
from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.ops.emit import captured
from openipu.tensorflow.stablehlo import Lowered, lower
from openipu.tensorflow.stablehlo.evaluate import Held, Within


@attrs.frozen(eq=False)
class Captured:
    """A TensorFlow function, the framework gone.

    It is traced, and what it does is known; XLA translates it when it is first evaluated (or `lowered` asked for),
    which takes longer than all else and is not needed when its executable is found in a cache.

    Attributes:
      name: of the Python function.
      variables: the variables it uses, in the order of `lowered`'s extra inputs; None where a constant stands.
      constants: the tensors it closed over, None where a variable stands.
      arguments: how many inputs come before them.
      results: how many of the outputs are results; the others are new values of variables.
      structure: the Python structure of the results.
      graph: what is known without XLA.
      limits: of its own inputs those that are labels or indices, and of how many things.
    """

    name: str
    variables: tuple[tf.Variable | None, ...]
    constants: tuple[np.ndarray | None, ...]
    arguments: int
    results: int
    structure: Any
    graph: Graph
    limits: tuple[Limit | None, ...]
    _text: Callable[[], str] = attrs.field(alias="text")

    @functools.cached_property
    def lowered(self) -> Lowered:
        """Evaluates it on (arguments, variables and constants); what XLA cannot compile is refused as on the IPU."""
        try:
            text = self._text()
        except (ValueError, tf.errors.OpError) as error:
            raise UnsupportedError(
                f"{self.name} cannot be compiled for the IPU: {_reason(error)}\n"
                "Every operation of a program for the IPU must be compiled, with static shapes. "
                f"{_way_round(str(error))}"
            ) from error
        lowered = lower(text)
        self._check(lowered)
        return lowered

    def _check(self, lowered: Lowered) -> None:
        """Programs are put together, and found in caches, by what the graph says: XLA must not say more."""
        expected = self.arguments + len(self.variables)
        if len(lowered.inputs) != expected:
            raise AssertionError(f"{self.name}: XLA wants {len(lowered.inputs)} inputs, TensorFlow gave {expected}")
        if len(lowered.outputs) - len(lowered.aliases) != self.results:
            raise AssertionError(f"{self.name}: XLA gives other results than TensorFlow's {self.results}")
        if not set(lowered.aliases.values()) <= set(self.graph.written):
            raise AssertionError(f"{self.name} assigns variables that its graph only reads")
        if lowered.needs_key and not self.graph.draws:
            raise AssertionError(f"{self.name} draws random numbers by operations that are not known to do so")

    @property
    def written(self) -> list[tf.Variable]:
        """The variables this function assigns."""
        return [self._variable(i) for i in self.graph.written]

    @property
    def used(self) -> list[tf.Variable]:
        """The variables this function reads or assigns."""
        return [v for v in self.variables if v is not None]

    def __call__(
        self,
        arguments: Sequence[jax.Array],
        values: dict[int, jax.Array],
        key: jax.Array | None = None,
        within: Within | None = None,
        held: Held | None = None,
    ) -> tuple[list[jax.Array], dict[int, jax.Array]]:
        """Evaluate on arrays.

        Args:
          arguments: the function's own inputs, flat.
          values: current values of the variables by `id`.
          key: for random operations without a state of their own.
          within: gives, for the TensorFlow name of each operation, the context it is evaluated in.
          held: what custom calls keep from one to the next, changed in place.

        Returns:
          The results, flat, and the new values of the variables in `written`.
        """
        extra = [values[id(v)] if v is not None else c for v, c in zip(self.variables, self.constants, strict=True)]
        outputs = self.lowered(*arguments, *extra, key=key, within=within, held=held)
        # What XLA finds not to be assigned after all stays as it is.
        written = {id(v): values[id(v)] for v in self.written}
        written |= {id(self._variable(i)): outputs[o] for o, i in self.lowered.aliases.items()}
        return list(outputs[: self.results]), written

    def _variable(self, index: int) -> tf.Variable:
        variable = self.variables[index - self.arguments]
        if variable is None:
            raise AssertionError(f"input {index} of {self.name} is assigned but is not a variable")
        return variable


def capture(function: Callable, specs: Sequence[tf.TensorSpec], name: str | None = None) -> Captured:
    """Capture `function(*tensors)`.

    Args:
      function: Python function of flat tensors; it may use variables, which must exist already.
      specs: shapes and dtypes of its arguments, all static.
      name: for messages; the function's own by default.
    """
    name = name or function.__name__
    traced = tf.function(function, jit_compile=True, autograph=False)
    with captured():
        concrete = traced.get_concrete_function(*specs)
    read = {id(raw_handle(v)): v for v in concrete.graph.variables}
    variables, constants = [], []
    for value in concrete.captured_inputs:
        variable = read.get(id(value), by_handle(value))
        if variable is None:
            refuse_resource(value, name)
        variables.append(variable)
        constants.append(None if variable is not None else value.numpy())
    return Captured(
        name=name,
        variables=tuple(variables),
        constants=tuple(constants),
        arguments=len(specs),
        results=len(concrete.outputs),
        structure=concrete.structured_outputs,
        graph=Graph(concrete),
        limits=limits(concrete.inputs, variables),
        text=lambda: stablehlo(concrete),
    )


def refuse_resource(value: tf.Tensor, name: str) -> None:
    """Refuse what only the host has; XLA itself ends the process when it is given such an argument.

    Args:
      value: an argument of a function, or a tensor it closed over.
      name: of the function.
    """
    if value.dtype not in (tf.resource, tf.variant):
        return
    kind = re.search(r'type="(?:\w+::)*(\w+)"', repr(value))
    raise UnsupportedError(
        f"{name} uses a resource that is not a variable ({kind[1] if kind else value.dtype.name}): tables, iterators "
        "and queues cannot be part of a program for the IPU. Give batches as arguments, as in "
        "`for batch in dataset: strategy.run(step, args=(batch,))`, or train with Keras' fit."
    )


def _way_round(message: str) -> str:
    if "StringFormat" in message or "PrintV2" in message:
        return "To print a tensor from the IPU, use ipu.internal_ops.print_tensor in place of tf.print."
    if "Summary" in message:
        return "Return the tensor from the program, and make its summary outside of it."
    return "Move what cannot be compiled to the host (for example into the tf.data pipeline)."


def _reason(error: Exception) -> str:
    """The first sentences of an XLA error; the rest is where in Python, mostly in the frameworks, and the graph."""
    message = str(error).strip()
    return re.split(r"\s*The op is created at|\n\n", message)[0][:1500]
