"""A computation that a graph of TensorFlow 1 hands to the IPU: what it takes, what it computes, what it assigns."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import tensorflow as tf

from openipu.tensorflow import boundary
from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.ops import collectives
from openipu.tensorflow.ops.emit import captured

_RESOURCES = (
    "Make it inside of ipu_scope, or call tf.enable_resource_variables() at the start of the program, before any "
    "variable is made (tf.train.get_or_create_global_step() makes one)."
)


@attrs.frozen(eq=False)
class Computation:
    """A function that was built in a graph of its own.

    Attributes:
      name: of the Python function.
      graph: its operations, as a message.
      inputs: the tensors of the surrounding graph that it uses, with the placeholder that stands for each.
      variables: the variables of the surrounding graph that it uses, with the placeholder of each.
      written: which of the variables it may assign.
      eager: handles of variables outside of all graphs (cursors of feeds), with the placeholder of each.
      outputs: names of the tensors it returns.
      types: types of those.
    """

    name: str
    graph: Any
    inputs: tuple[tuple[tf.Tensor, str], ...]
    variables: tuple[tuple[Any, str], ...]
    written: tuple[int, ...]
    eager: tuple[tuple[tf.Tensor, str], ...]
    outputs: tuple[str, ...]
    types: tuple[tf.TensorSpec, ...]

    def rebuild(self, inputs: Sequence[tf.Tensor], handles: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The same operations in the function that is being traced, on other inputs and variables."""
        graph = tf.compat.v1.get_default_graph()
        pairs = [*zip(handles, (name for _, name in self.variables), strict=True), *self.eager]
        given = {name: boundary.captured_by(graph, handle) for handle, name in pairs}
        given |= {name: tensor for tensor, (_, name) in zip(inputs, self.inputs, strict=True)}
        return tf.graph_util.import_graph_def(self.graph, input_map=given, return_elements=list(self.outputs), name="")


def trace(computation: Callable, inputs: Sequence[tf.Tensor]) -> Computation:
    """Build a computation in a graph of its own; its variables are made in the surrounding graph."""
    name = getattr(computation, "__name__", "computation").strip("<>_")

    def build() -> list[tf.Tensor]:
        graph = tf.compat.v1.get_default_graph()
        with tf.variable_creator_scope(_create_outside), collectives.reducing(), _explaining(name):
            returned = computation(*(boundary.captured_by(graph, i) for i in inputs))
        return _tensors(returned, name)

    surrounding = tf.compat.v1.get_default_graph()
    with captured():
        inner = boundary.function_graph(name, build)
    variables = {id(v.handle): v for v in _variables(surrounding, inner)}
    plain, resources, eager = [], [], []
    for outside, placeholder in inner.captures:
        if hasattr(outside, "numpy"):
            eager.append((outside, placeholder.name))
        elif id(outside) in variables:
            resources.append((variables[id(outside)], placeholder.name))
        elif outside.dtype in (tf.resource, tf.variant) or outside.dtype != outside.dtype.base_dtype:
            raise _not_a_variable(name, outside)
        else:
            plain.append((outside, placeholder.name))
    read = {inner.inputs[i].name for i in boundary.read_only_inputs(inner)}
    message = inner.as_graph_def()
    stand_ins = {placeholder.op.name for _, placeholder in inner.captures}
    kept = [node for node in message.node if node.name not in stand_ins]
    del message.node[:]
    message.node.extend(kept)
    for node in [*message.node, *(node for f in message.library.function for node in f.node_def)]:
        # The program is on the IPU as a whole.
        node.device = ""
        node.attr.pop("_class", None)
    return Computation(
        name=name,
        graph=message,
        inputs=tuple(plain),
        variables=tuple(resources),
        written=tuple(i for i, (_, name) in enumerate(resources) if name not in read),
        eager=tuple(eager),
        outputs=tuple(t.name for t in inner.outputs),
        types=tuple(tf.TensorSpec(t.shape, t.dtype) for t in inner.outputs),
    )


def _not_a_variable(name: str, tensor: tf.Tensor) -> UnsupportedError:
    if tensor.op.type in ("VarHandleOp", "VariableV2", "Variable") or tensor.dtype != tensor.dtype.base_dtype:
        return UnsupportedError(f"{name} uses {tensor.name}, which is not a resource variable. {_RESOURCES}")
    return UnsupportedError(
        f"{name} uses {tensor.name} ({tensor.op.type}), which only the host has: iterators, tables and queues cannot "
        "be part of a program for the IPU. Take the element outside, as in `compile(computation, "
        "[iterator.get_next()])`, or give the dataset to an IPUInfeedQueue."
    )


@contextlib.contextmanager
def _explaining(name: str) -> Iterator[None]:
    """Say what to do about variables of the older kind, which operations of the IPU cannot write."""
    try:
        yield
    except TypeError as error:
        if "_ref" not in str(error):
            raise
        raise UnsupportedError(f"{name} writes a variable that is not a resource variable. {_RESOURCES}") from error


def _create_outside(next_creator: Callable, **kwargs: Any) -> Any:
    """Make a variable as a resource variable of the surrounding graph."""
    initial = kwargs["initial_value"]
    graph = tf.compat.v1.get_default_graph()
    with tf.init_scope():
        outside = tf.compat.v1.get_default_graph()
        if tf.is_tensor(initial) and initial.graph is graph and graph is not outside:
            kwargs["initial_value"] = boundary.lifted(initial, outside)
        return next_creator(**{**kwargs, "use_resource": True})


def _tensors(returned: Any, name: str) -> list[tf.Tensor]:
    """What a computation returns, without operations: all that changes a variable runs."""
    if returned is None:
        return []
    if type(returned).__name__.endswith("EstimatorSpec"):
        raise ValueError(
            f"{name} returns an EstimatorSpec. The estimator compiles its model_fn itself: pass the function to "
            "IPUEstimator in place of ipu_compiler.compile."
        )
    flat = [r for r in tf.nest.flatten(returned) if r is not None and not isinstance(r, tf.Operation)]
    try:
        return [tf.convert_to_tensor(value) for value in flat]
    except (TypeError, ValueError) as error:
        raise TypeError(f"A computation must return tensors and operations. Received: {flat!r} from {name}.") from error


def _variables(*graphs: Any) -> list[Any]:
    found = [v for graph in graphs for v in getattr(graph, "variables", ())]
    for key in (tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, tf.compat.v1.GraphKeys.LOCAL_VARIABLES):
        found += graphs[0].get_collection(key)
    return [v for v in found if hasattr(v, "handle")]
