"""How Keras 3 keeps the graph of a model: its nodes, what they take and make, and how one is run again."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
from keras.src import backend, tree
from keras.src.backend.common import global_state
from keras.src.layers.layer import CallContext
from keras.src.models.functional import Functional as _Functional
from keras.src.ops.function import map_graph
from keras.src.ops.node import KerasHistory, Node
from keras.src.ops.operation import Operation

Model, Sequential, Layer = keras.Model, keras.Sequential, keras.layers.Layer
Functional = _Functional
Variable = backend.Variable
STAGED = (Operation, Node)
# A layer opens its name scope once to be built and once to be called.
SCOPES_PER_CALL = 2
# `build` of a model gets shapes; the dtypes are in the inputs with which `call` has run before.
BUILDS_FROM_SHAPES = True


def models_being_called() -> list[Any]:
    """The models in whose `call` we are, outermost first."""
    stack = global_state.get_global_attribute("name_scope_stack") or []
    return [scope.caller for scope in stack if isinstance(scope.caller, Model)]


def belongs_to_sequential(model: Any) -> bool:
    """Whether this Functional model, just being built, is the inside of a Sequential one."""
    around = [caller for caller in models_being_called() if caller is not model]
    return bool(around) and isinstance(around[-1], Sequential)


def graph_model(model: Any) -> Any | None:
    """The Functional model that holds the graph; None when there is none (yet)."""
    if isinstance(model, Sequential):
        return model._functional
    return model if isinstance(model, Functional) else None


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
    packed = tree.pack_sequence_as(model._outputs_struct, list(flat))
    return packed[0] if isinstance(packed, (list, tuple)) and len(packed) == 1 else packed


def operation(node: Node) -> Any:
    """What the node calls."""
    return node.operation


def node_inputs(node: Node) -> list[Any]:
    """The symbolic tensors the node takes."""
    return list(node.input_tensors)


def node_outputs(node: Node) -> list[Any]:
    """The symbolic tensors the node makes."""
    return list(node.outputs)


def constants(node: Node) -> list[Any]:
    """What the node takes that is no symbolic tensor: numbers, variables."""
    flat = tree.flatten((node.arguments.args, node.arguments.kwargs))
    return [value for value in flat if not isinstance(value, backend.KerasTensor)]


def arguments(node: Node) -> tuple[tuple, dict[str, Any]]:
    """The arguments of the call, with symbolic tensors in them."""
    given: Any = node.arguments
    return given.args, given.kwargs


def is_symbolic(value: Any) -> bool:
    """Whether a value stands for a tensor of the graph."""
    return isinstance(value, backend.KerasTensor)


def implied_masks(node: Node) -> list[Any]:
    """The masks among a call's arguments that Keras put there because the inputs carry them anyway."""
    args, kwargs = arguments(node)
    carried = {id(mask(t)) for t in tree.flatten(args) if is_symbolic(t)}
    return [m for m in tree.flatten(kwargs.get("mask")) if id(m) in carried]


def is_layer(thing: Any) -> bool:
    """Whether it is a layer; bare operations open no name scope and have no weights."""
    return isinstance(thing, Layer)


def flatten(structure: Any) -> list[Any]:
    """The leaves of a structure."""
    return tree.flatten(structure)


def map_structure(function: Callable[[Any], Any], structure: Any) -> Any:
    """Replace the leaves of a structure."""
    return tree.map_structure(function, structure)


def shape_and_dtype(tensor: Any) -> tuple[tuple[int | None, ...], str]:
    """Of a symbolic tensor."""
    return tuple(tensor.shape), tensor.dtype


def run(node: Node, values: dict[int, Any], training: bool | None, force: bool) -> list[Any]:
    """Run one call again on values; `force` gives `training` to every layer, as Functional models do."""
    given: Any = node.arguments
    args, kwargs = given.fill_in(values)
    if force and training is not None and is_layer(node.operation):
        kwargs = {**kwargs, "training": training}
    return tree.flatten(node.operation(*args, **kwargs))


@contextlib.contextmanager
def calling(model: Any) -> Iterator[Callable[[bool | None], None]]:
    """Be inside a call of the model; gives the function that says whether what follows is training."""
    previous = global_state.get_global_attribute("current_call_ctx")
    context = CallContext(entry_layer=model)
    global_state.set_global_attribute("current_call_ctx", context)
    try:
        yield lambda training: context.set_value("training", training)
    finally:
        global_state.set_global_attribute("current_call_ctx", previous)


def scope(model: Any) -> contextlib.AbstractContextManager:
    """The name scope that a call of the model opens."""
    return model._open_name_scope()


def mask(value: Any) -> Any:
    """The mask that travels with a tensor."""
    return backend.get_keras_mask(value)


def set_mask(value: Any, given: Any) -> None:
    """Let a mask travel with a tensor."""
    backend.set_keras_mask(value, given)


def cast(value: Any, dtype: str) -> Any:
    """The value in another dtype, with its mask."""
    made = backend.cast(value, dtype)
    if mask(value) is not None:
        set_mask(made, mask(value))
    return made


def infer(function: Callable[..., Any], *symbolic: Any) -> Any:
    """Run a function of tensors for its shapes only."""
    return backend.compute_output_spec(function, *symbolic)


def standardise(model: Any, x: Any) -> list[Any]:
    """The inputs of a model, flat, in the order, dtype and rank in which its graph takes them."""
    if not isinstance(model, Functional):
        x = tree.map_structure(lambda v: model.dtype_policy.convert_input(v, model.autocast, model.input_dtype), x)
    holder = graph_model(model)
    return tree.flatten(x) if holder is None else holder._standardize_inputs(x)


def argument_order(model: Any, given: Any) -> list[Any]:
    """What a nested model is called with, in the order of its graph's inputs."""
    holder = graph_model(model)
    if holder is not None and isinstance(given, dict) and not isinstance(holder._inputs_struct, dict):
        return [given[tensor.name] for tensor in holder.inputs]
    return tree.flatten(given)


def symbolic(model: Any, shape: tuple, dtype: str) -> Any:
    """A symbolic input for the `call` of a subclassed model, in the dtype in which the model gets it."""
    if model.autocast and backend.is_float_dtype(dtype) and backend.is_float_dtype(model.input_dtype):
        dtype = model.input_dtype
    made = backend.KerasTensor(shape, dtype)
    made._keras_history = KerasHistory(operation=None, node_index=0, tensor_index=0)
    return made


def symbolic_like(model: Any, x: Any) -> Any:
    """Symbolic inputs like tensors, their specs, other symbolic inputs, or plain shapes of floats."""

    def convert(value: Any) -> Any:
        dtype = getattr(value.dtype, "name", value.dtype)
        return symbolic(model, tuple(value.shape), backend.standardize_dtype(dtype))

    if all(hasattr(value, "dtype") for value in tree.flatten(x)):
        return tree.map_structure(convert, x)
    return tree.map_shape_structure(lambda shape: symbolic(model, tuple(shape), backend.floatx()), x)


def built_shape(model: Any) -> Any:
    """The shape of the inputs a subclassed model was built for; None when it is not known."""
    shapes = model._build_shapes_dict if model.built else None
    return next(iter(shapes.values())) if shapes and len(shapes) == 1 else None


def takes_training(model: Any) -> bool:
    """Whether the model's `call` has an argument of this name."""
    return model._call_has_training_arg


def trace(
    model: Any, args: tuple, kwargs: dict[str, Any], flat_inputs: list[Any], training: bool | None
) -> tuple[list[Node], Any]:
    """The calls that a subclassed model's `call` makes on symbolic inputs, and what it returns."""
    # Keras notes in the node what a layer finds out about training from the calls around it.
    with calling(model) as set_training, scope(model):
        set_training(training)
        result = model.call(*args, **kwargs)
    made = [t for t in tree.flatten(result) if is_symbolic(t)]
    return _in_order(map_graph(flat_inputs, made)[1]), result


def forget(traced: Sequence[Node]) -> None:
    """Take the nodes of a trace out of the layers again: they were only looked at."""
    for node in traced:
        if node in node.operation._inbound_nodes:
            node.operation._inbound_nodes.remove(node)
        for parent in {id(t._keras_history.operation): t._keras_history.operation for t in node.input_tensors}.values():
            if parent is not None and node in parent._outbound_nodes:
                parent._outbound_nodes.remove(node)


def variables(layer: Any) -> list[Any]:
    """All variables of a layer: weights, statistics, seeds."""
    return list(layer.variables) if is_layer(layer) else []


def own_losses(layer: Any) -> list[Any]:
    """Losses the layer added in its last call, those of layers inside it included."""
    return [loss for inner in layer._flatten_layers() for loss in inner._get_own_losses()] if is_layer(layer) else []


def clear_losses(layer: Any) -> None:
    """Forget the losses of earlier calls."""
    if is_layer(layer):
        layer._clear_losses()


def regularisers(layer: Any) -> list[Callable[[], Any]]:
    """The weight regularisation losses of a layer."""
    weights = layer.trainable_weights if is_layer(layer) else []
    return [lambda v=v: v.regularizer(v) for v in weights if v.regularizer is not None]


def all_layers(model: Any) -> list[Any]:
    """Every layer inside a model, at any depth."""
    return list(model._flatten_layers(include_self=False))


def sequential_layers(model: Any) -> list[Any]:
    """The layers of a Sequential model, without inputs."""
    return list(model.layers)


def saved_order(model: Any) -> list[Any]:
    """What a saved Functional model numbers its layers by."""
    return list(model.operations)


def in_call() -> bool:
    """Whether some layer is being called right now."""
    return global_state.get_global_attribute("current_call_ctx") is not None


def _in_order(by_depth: dict[int, list[Node]]) -> list[Node]:
    ordered = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]
    return [node for node in ordered if node.operation is not None and not node.is_input]
