"""Capture of a torch module as a pure function on JAX arrays."""

import contextlib
import os
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.fx import Node

from openipu.torch.aten import decompositions, evaluate
from openipu.torch.aten.dtypes import known, to_numpy
from openipu.torch.capture import own_gradients
from openipu.torch.capture.interception import Interception
from openipu.torch.capture.no_gradient import mark_stopped
from openipu.torch.exceptions import UnsupportedError


class Evaluation(NamedTuple):
    """All that one evaluation of a captured module gives.

    Attributes:
      outputs: flat tensors of the user's result.
      mutated: new values of `Captured.mutated`.
      parameters: new values of the parameters named in `Captured.mutated_parameters`.
      inputs: new values of the inputs numbered in `Captured.mutated_inputs`.
      watched: values of the operations asked for.
    """

    outputs: list[jax.Array]
    mutated: list[jax.Array]
    parameters: list[jax.Array]
    inputs: list[jax.Array]
    watched: list[jax.Array]


class Captured:
    """A module as a pure function, with what it reads and writes.

    Attributes:
      parameters, buffers: names in the order of the inputs; a tensor with several names appears once, under its first.
      trainable: for each parameter whether it requires a gradient.
      mutated, mutated_parameters: names of the buffers and parameters the module writes.
      inputs, outputs: shapes and dtypes of the tensors in the user's arguments and result, flat.
      mutated_inputs: numbers of the inputs the module writes.
      needs_key: whether the module draws random numbers.
      graph: the captured operations, for reports and for placing them in stages.
      input_nodes, output_nodes: what stands for the inputs and outputs in the graph.
      signature: what each of the graph's inputs and outputs is, as text.
    """

    def __init__(self, program: torch.export.ExportedProgram, module: torch.nn.Module) -> None:
        self.graph = program.graph
        self.signature = str(program.graph_signature)
        self._steps = evaluate.steps(program.graph)
        self.needs_key = any(step.random for step in self._steps)
        first_names = _first_names(module)
        placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        parameters: dict[str, list[Node]] = {}
        buffers: dict[str, list[Node]] = {}
        inputs: list[Node] = []
        self._constants: dict[Node, np.ndarray] = {}
        for spec in program.graph_signature.input_specs:
            if not isinstance(spec.arg, TensorArgument):
                continue
            node = placeholders[spec.arg.name]
            name = spec.target or ""
            if spec.kind == InputKind.PARAMETER:
                parameters.setdefault(first_names[name], []).append(node)
            elif spec.kind == InputKind.BUFFER:
                buffers.setdefault(first_names[name], []).append(node)
            elif spec.kind == InputKind.CONSTANT_TENSOR:
                value = program.constants[name]
                assert isinstance(value, torch.Tensor)
                self._constants[node] = _array(value)
            elif spec.kind == InputKind.USER_INPUT:
                inputs.append(node)
        # Placeholders of constants that are no tensors are never read: the operations hold their values.
        self.parameters = tuple(parameters)
        self.buffers = tuple(buffers)
        self.inputs = tuple(_abstract(node) for node in inputs)
        owners = dict(module.named_parameters())
        self.trainable = tuple(bool(owners[name].requires_grad) for name in self.parameters)
        self._parameter_nodes = list(parameters.values())
        self._buffer_nodes = list(buffers.values())
        self.input_nodes = inputs
        self._read_outputs(program, first_names)

    def _read_outputs(self, program: torch.export.ExportedProgram, first_names: dict[str, str]) -> None:
        results = next(node for node in program.graph.nodes if node.op == "output").args[0]
        names = [node.name for node in self.input_nodes]
        written: dict[OutputKind, dict[Any, Node]] = {
            OutputKind.BUFFER_MUTATION: {},
            OutputKind.PARAMETER_MUTATION: {},
            OutputKind.USER_INPUT_MUTATION: {},
        }
        leaves: list[Any] = []
        for spec, value in zip(program.graph_signature.output_specs, results, strict=True):
            if spec.kind == OutputKind.USER_OUTPUT:
                leaves.append(value)
            elif spec.kind == OutputKind.USER_INPUT_MUTATION:
                written[spec.kind][names.index(spec.target or "")] = value
            elif spec.kind in written:
                assert spec.target is not None
                written[spec.kind][first_names[spec.target]] = value
        self._writes = [list(group.values()) for group in written.values()]
        self.mutated, self.mutated_parameters, self.mutated_inputs = (tuple(group) for group in written.values())
        self.output_nodes = [leaf for leaf in leaves if isinstance(leaf, Node)]
        self.outputs = tuple(_abstract(node) for node in self.output_nodes)

    @property
    def constants(self) -> dict[str, np.ndarray]:
        """The tensors that are compiled in, by the names of their nodes."""
        return {node.name: value for node, value in self._constants.items()}

    def __call__(
        self, parameters: Sequence[Any], buffers: Sequence[Any], inputs: Sequence[Any], key: jax.Array | None = None
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        """Evaluate the module: (outputs, new values of the buffers named in `mutated`)."""
        return self.evaluate(parameters, buffers, inputs, key)[:2]

    def evaluate(
        self,
        parameters: Sequence[Any],
        buffers: Sequence[Any],
        inputs: Sequence[Any],
        key: jax.Array | None = None,
        around: evaluate.Around | None = None,
        watch: Sequence[Node] = (),
    ) -> Evaluation:
        """Evaluate the module.

        Args:
          parameters, buffers, inputs: values in the order of the attributes of these names.
          key: the random key; needed when `needs_key`.
          around: for each operation's node a context in which it is evaluated, to mark what is traced.
          watch: operations whose values are wanted as well.
        """
        env: dict[Node, Any] = {node: jnp.asarray(value) for node, value in self._constants.items()}
        for nodes, value, trainable in zip(self._parameter_nodes, parameters, self.trainable, strict=True):
            value = jnp.asarray(value)
            env.update(dict.fromkeys(nodes, value if trainable else lax.stop_gradient(value)))
        for nodes, value in zip(self._buffer_nodes, buffers, strict=True):
            env.update(dict.fromkeys(nodes, lax.stop_gradient(jnp.asarray(value))))
        for node, value in zip(self.input_nodes, inputs, strict=True):
            env[node] = jnp.asarray(value)
        evaluate.run(self._steps, env, key, around)
        groups = (self.output_nodes, *self._writes, watch)
        return Evaluation(*([env[node] for node in group] for group in groups))


def capture(module: torch.nn.Module, args: tuple, kwargs: dict | None = None) -> Captured:
    """Capture one call of a module, in its present training or evaluation mode.

    Args:
      module: what to capture; it is left as it is.
      args, kwargs: example arguments. Only the shapes and dtypes of tensors matter; all else becomes constant.

    Raises:
      UnsupportedError: when the module does something that has no place in a program with static shapes.
    """
    with warnings.catch_warnings():
        # About the way export treats recurrent modules, and about its own use of deprecated names.
        warnings.simplefilter("ignore")
        with _refusing(), Interception(), own_gradients.recording() as calls:
            program = torch.export.export(module, args, kwargs, strict=False)
        mark_stopped(program.graph_module)
        # Composites that must be refused by name are refused before they are taken apart.
        with _refusing():
            program = decompositions.decomposed(program)
    own_gradients.trace(program.graph_module, calls, capture)
    return Captured(program, module)


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Turns what torch's export cannot do into refusals of ours; errors of the user's own code stay what they are."""
    try:
        yield
    except UnsupportedError:
        raise
    except Exception as error:
        kind = type(error).__name__
        if kind in _DATA_DEPENDENT or any(mark in str(error) for mark in _MARKS):
            raise UnsupportedError(
                "The module cannot be captured with static shapes: what it computes depends on the values in its "
                f"tensors. Use masks or torch.where instead. torch says: {_headline(error)}"
            ) from error
        if _raised_by_export(error):
            raise UnsupportedError(
                f"The module cannot be captured as a program of its own. torch says: {_headline(error)}"
            ) from error
        raise


def _raised_by_export(error: Exception) -> bool:
    """Whether torch's export itself complains, rather than an operation or the user's code."""
    innermost = list(traceback.walk_tb(error.__traceback__))[-1][0].f_code.co_filename
    return innermost.startswith(_EXPORT)


_TORCH = os.path.dirname(torch.__file__)
_EXPORT = tuple(
    os.path.join(_TORCH, part) + os.sep
    for part in ("export", "_export", "_dynamo", os.path.join("_functorch", "_aot_autograd"))
)
_DATA_DEPENDENT = (
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "GuardOnDataDependentSymNode",
)
_MARKS = ("data-dependent", "Data-dependent", "data dependent", "Dynamic output shape")


def _headline(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0]


def _first_names(module: torch.nn.Module) -> dict[str, str]:
    """For every name of a parameter or buffer the first name of the same tensor."""
    names: dict[str, str] = {}
    seen: dict[int, str] = {}
    every: list[Callable[..., Iterator[tuple[str, torch.Tensor]]]] = [module.named_parameters, module.named_buffers]
    for named in every:
        for name, tensor in named(remove_duplicate=False):
            names[name] = seen.setdefault(id(tensor), name)
    return names


def _abstract(node: Node) -> jax.ShapeDtypeStruct:
    value = node.meta["val"]
    if not known(value.dtype):
        raise UnsupportedError(f"Tensors of {value.dtype} are not supported. Received one named {node.name!r}.")
    return jax.ShapeDtypeStruct(tuple(value.shape), to_numpy(value.dtype))


def _array(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.float().numpy().astype(jnp.bfloat16)
    return tensor.numpy().copy()
