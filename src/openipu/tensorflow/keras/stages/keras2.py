"""How Keras 2 (`tf_keras`) keeps the graph of a model: the same functions as in `keras3`."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tf_keras
from tf_keras.src import backend
from tf_keras.src.engine import base_layer_utils, functional, keras_tensor
from tf_keras.src.engine.node import Node

Model, Sequential, Layer = tf_keras.Model, tf_keras.Sequential, tf_keras.layers.Layer
Functional = functional.Functional
Variable = tf.Variable
STAGED = (Layer, Node)
SCOPES_PER_CALL = 1
# `build` would make float inputs of the shapes.
BUILDS_FROM_SHAPES = False


def models_being_called() -> list[Any]:
    """The model in whose `call` we are."""
    layer = base_layer_utils.call_context().layer
    return [layer] if isinstance(layer, Model) else []


def belongs_to_sequential(model: Any) -> bool:
    """Sequential models of Keras 2 keep their graph themselves."""
    return isinstance(model, Sequential)


def graph_model(model: Any) -> Any | None:
    """The model itself, once it has a graph."""
    return model if isinstance(model, Functional) and getattr(model, "_nodes_by_depth", None) else None


def nodes(model: Any) -> list[Node]:
    """The calls of a Functional model in the order in which they run."""
    return _in_order(model._nodes_by_depth)


def inputs(model: Any) -> list[Any]:
    """The symbolic inputs of a Functional model."""
    return list(model.inputs)


def outputs(model: Any) -> list[Any]:
    """The symbolic outputs of a Functional model."""
    return list(model.outputs)


def pack_outputs(model: Any, flat: Sequence[Any]) -> Any:
    """Outputs in the structure that calling the Functional model gives."""
    return tf.nest.pack_sequence_as(model._nested_outputs, list(flat))


def operation(node: Node) -> Any:
    """What the node calls."""
    return node.layer


def node_inputs(node: Node) -> list[Any]:
    """The symbolic tensors the node takes."""
    return list(node.keras_inputs)


def node_outputs(node: Node) -> list[Any]:
    """The symbolic tensors the node makes."""
    return tf.nest.flatten(node.outputs)


def constants(node: Node) -> list[Any]:
    """What the node takes that is no symbolic tensor: numbers, variables."""
    return [value for value in tf.nest.flatten((node.call_args, node.call_kwargs)) if not is_symbolic(value)]


def arguments(node: Node) -> tuple[tuple, dict[str, Any]]:
    """The arguments of the call, with symbolic tensors in them."""
    return tuple(node.call_args), dict(node.call_kwargs)


def is_symbolic(value: Any) -> bool:
    """Whether a value stands for a tensor of the graph."""
    return isinstance(value, keras_tensor.KerasTensor)


def implied_masks(node: Node) -> list[Any]:
    """Keras 2 finds masks when a layer is called and puts none into the graph."""
    return []


def is_layer(thing: Any) -> bool:
    """Everything in a graph of Keras 2 is a layer."""
    return isinstance(thing, Layer)


def flatten(structure: Any) -> list[Any]:
    """The leaves of a structure."""
    return tf.nest.flatten(structure)


def map_structure(function: Callable[[Any], Any], structure: Any) -> Any:
    """Replace the leaves of a structure."""
    return tf.nest.map_structure(function, structure)


def shape_and_dtype(tensor: Any) -> tuple[tuple[int | None, ...], str]:
    """Of a symbolic tensor."""
    return tuple(tensor.shape), tensor.dtype.name


def run(node: Node, values: dict[int, Any], training: bool | None, force: bool) -> list[Any]:
    """Run one call again on values; layers find `training` in the context of the call."""
    # Keras takes a value out of its list for every use; there is one list for each use here.
    uses = {str(key): [value] * len(node.flat_input_ids) for key, value in values.items()}
    args, kwargs = node.map_arguments(uses)
    return tf.nest.flatten(node.layer(*args, **kwargs))


@contextlib.contextmanager
def calling(model: Any) -> Iterator[Callable[[bool | None], None]]:
    """Be inside a call of the model; gives the function that says whether what follows is training."""
    context = base_layer_utils.call_context()
    given: dict[str, Any] = {}
    with context.enter(model, None, build_graph=False, call_context_args=given):
        yield lambda training: given.update(training=training)


def scope(model: Any) -> contextlib.AbstractContextManager:
    """The name scope that a call of the model opens."""
    return tf.name_scope(model.name)


def mask(value: Any) -> Any:
    """The mask that travels with a tensor."""
    return getattr(value, "_keras_mask", None)


def set_mask(value: Any, given: Any) -> None:
    """Let a mask travel with a tensor."""
    value._keras_mask = given


def cast(value: Any, dtype: str) -> Any:
    """The value in another dtype, with its mask."""
    made = tf.cast(value, dtype)
    if mask(value) is not None:
        set_mask(made, mask(value))
    return made


def infer(function: Callable[..., Any], *symbolic: Any) -> Any:
    """Run a function of tensors for its shapes only."""
    specs = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), symbolic)
    traced = tf.function(lambda *values: function(*values), autograph=False)
    return traced.get_concrete_function(*specs).structured_outputs


def standardise(model: Any, x: Any) -> list[Any]:
    """The inputs of a model, flat, in the order, dtype and rank in which its graph takes them."""
    x = tf.nest.map_structure(tf.convert_to_tensor, x)
    holder = graph_model(model)
    if holder is None:
        x = model._maybe_cast_inputs(x)
        return tf.nest.flatten(x)
    flat = holder._flatten_to_reference_inputs(x)
    return [holder._conform_to_reference_input(v, ref_input=r) for v, r in zip(flat, holder.inputs, strict=True)]


def argument_order(model: Any, given: Any) -> list[Any]:
    """What a nested model is called with, in the order of its graph's inputs."""
    holder = graph_model(model)
    return tf.nest.flatten(given) if holder is None else holder._flatten_to_reference_inputs(given)


def symbolic(model: Any, shape: tuple, dtype: str) -> Any:
    """A symbolic input for the `call` of a subclassed model, in the dtype in which the model gets it."""
    if model._autocast and tf.as_dtype(dtype).is_floating and model._compute_dtype is not None:
        dtype = model._compute_dtype
    return tf_keras.Input(batch_shape=shape, dtype=dtype)


def symbolic_like(model: Any, x: Any) -> Any:
    """Symbolic inputs like tensors, their specs, other symbolic inputs, or plain shapes of floats."""
    if all(hasattr(value, "dtype") for value in tf.nest.flatten(x)):
        return tf.nest.map_structure(lambda v: symbolic(model, tuple(v.shape), tf.as_dtype(v.dtype).name), x)
    if isinstance(x, (tuple, list, tf.TensorShape)) and all(d is None or isinstance(d, int) for d in x):
        return symbolic(model, tuple(x), backend.floatx())
    if isinstance(x, dict):
        return {name: symbolic_like(model, shape) for name, shape in x.items()}
    return [symbolic_like(model, shape) for shape in x]


def built_shape(model: Any) -> Any:
    """The shape of the inputs a subclassed model was built for; None when it is not known."""
    return model._build_input_shape if model.built else None


def takes_training(model: Any) -> bool:
    """Whether the model's `call` has an argument of this name."""
    return model._expects_training_arg


def trace(
    model: Any, args: tuple, kwargs: dict[str, Any], flat_inputs: list[Any], training: bool | None
) -> tuple[list[Node], Any]:
    """The calls that a subclassed model's `call` makes on symbolic inputs, and what it returns."""
    result = model.call(*args, **kwargs)
    made = [t for t in tf.nest.flatten(result) if is_symbolic(t)]
    return _in_order(functional._map_graph_network(flat_inputs, made)[1]), result


def forget(traced: Sequence[Node]) -> None:
    """Take the nodes of a trace out of the layers again: they were only looked at."""
    for node in traced:
        if node in node.layer._inbound_nodes:
            node.layer._inbound_nodes.remove(node)
        for parent in {id(t._keras_history.layer): t._keras_history.layer for t in node.keras_inputs}.values():
            if node in parent._outbound_nodes:
                parent._outbound_nodes.remove(node)


def variables(layer: Any) -> list[Any]:
    """All variables of a layer: weights, statistics, seeds."""
    return list(layer.variables)


def own_losses(layer: Any) -> list[Any]:
    """Losses the layer added in its last call, those of layers inside it included."""
    # `_losses` are those of the symbolic call with which the graph was made.
    return [loss for inner in layer._flatten_layers() for loss in inner._eager_losses]


def clear_losses(layer: Any) -> None:
    """Forget the losses of earlier calls."""
    layer._clear_losses()


def regularisers(layer: Any) -> list[Callable[[], Any]]:
    """The weight regularisation losses of a layer."""
    return [loss for inner in layer._flatten_layers() for loss in inner._callable_losses]


def all_layers(model: Any) -> list[Any]:
    """Every layer inside a model, at any depth."""
    return list(model._flatten_layers(include_self=False))


def sequential_layers(model: Any) -> list[Any]:
    """The layers of a Sequential model, without inputs."""
    return list(model.layers)


def saved_order(model: Any) -> list[Any]:
    """What a saved Functional model numbers its layers by."""
    return list(model.layers)


def in_call() -> bool:
    """Whether some layer is being called right now."""
    return base_layer_utils.call_context().in_call


def _in_order(by_depth: dict[int, list[Node]]) -> list[Node]:
    return [n for depth in sorted(by_depth, reverse=True) for n in by_depth[depth] if not n.is_input]
