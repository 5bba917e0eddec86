"""Keras 3: its boundary, and what `KerasVersion` asks of it."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src import backend, tree
from keras.src.backend.common import global_state
from keras.src.backend.config import max_epochs
from keras.src.callbacks.callback_list import CallbackList
from keras.src.layers.layer import CallContext
from keras.src.losses import loss as loss_module
from keras.src.models.functional import Functional
from keras.src.ops.function import map_graph
from keras.src.ops.node import KerasHistory, Node
from keras.src.ops.operation import Operation
from keras.src.saving import saving_lib
from keras.src.saving.object_registration import GLOBAL_CUSTOM_NAMES
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils

from openipu.frameworks import Private
from openipu.tensorflow.ops.gradient_capture import GradientCaptureTape

_LAYER = "keras.src.layers.layer"
_TRAINER = "keras.src.backend.tensorflow.trainer.TensorFlowTrainer"
_FUNCTION = "keras.src.models.functional.Functional"

TABLE = (
    Private("keras.Model.__new__", "models made in a strategy's scope train on the IPU",
            "the wrapper keeps the original as `__wrapped__`; models made outside of a scope are as they were"),
    Private("keras.Model.from_config", "our entries are taken out of saved configs",
            "the wrapper keeps the original as `__wrapped__`"),
    Private("keras.src.ops.operation.Operation.__init__", "layers constructed in a PipelineStage belong to it",
            "when the context ends"),
    Private("keras.src.ops.node.Node.__init__", "layers called in a PipelineStage belong to it",
            "when the context ends"),
    Private("keras.src.saving.object_registration.GLOBAL_CUSTOM_NAMES", "classes with our methods are saved as theirs"),
    Private("keras.src.saving.saving_lib.get_attr_skipset", "what is made to be looked at belongs to one instance",
            "the wrapper keeps the original as `__wrapped__`"),
    Private("keras.layers.LSTM.inner_loop", "the time loop is the core's kernel while a program is captured",
            "the wrapper keeps the original as `__wrapped__`, and calls it outside of a capture"),
    Private("keras.layers.GRU.inner_loop", "as for LSTM.inner_loop",
            "the wrapper keeps the original as `__wrapped__`, and calls it outside of a capture"),
    Private("keras.layers.BatchNormalization.call", "training is the core's call while a program is captured",
            "the wrapper keeps the original as `__wrapped__`, and calls it outside of a capture"),
    Private("keras.layers.BatchNormalization._moments", "whether a class derived from it has statistics of its own"),
    Private("keras.src.backend.config.max_epochs", "KERAS_MAX_EPOCHS"),
    Private("keras.src.backend.compute_output_spec", "models are built, and functions run, for their shapes only"),
    Private("keras.src.backend.common.global_state.get_global_attribute", "which layers are being called"),
    Private("keras.src.backend.common.global_state.set_global_attribute", "names of layers in a graph of its own",
            "when the context ends"),
    Private("keras.src.callbacks.callback_list.CallbackList", "callbacks are called by Keras' own container"),
    Private("keras.src.callbacks.callback_list.CallbackList._on_train_batch_end", "numbers are told as they are"),
    Private("keras.src.callbacks.callback_list.CallbackList._on_test_batch_end", "numbers are told as they are"),
    Private(f"{_LAYER}.CallContext", "a layer finds in it whether it trains"),
    Private(f"{_LAYER}.Layer._open_name_scope", "operations are named as in a call of the layer"),
    Private(f"{_LAYER}.Layer._flatten_layers", "all layers of a model"),
    Private(f"{_LAYER}.Layer._call_has_training_arg", "whether `call` takes `training`"),
    Private(f"{_LAYER}.Layer._build_shapes_dict", "what a model was built for"),
    Private("keras.src.losses.loss.unscale_loss_for_distribution", "the loss that is logged"),
    Private(f"{_TRAINER}._symbolic_build", "variables of loss, metrics and optimizer are made before the first step"),
    Private(f"{_TRAINER}._compute_loss", "the loss of a step"),
    Private(f"{_TRAINER}._loss_tracker", "the loss that is logged"),
    Private(f"{_TRAINER}._flatten_metrics_in_order", "what evaluate returns"),
    Private(f"{_FUNCTION}._nodes_by_depth", "the order in which a model runs"),
    Private(f"{_FUNCTION}._inputs_struct", "how a model is called"),
    Private("keras.src.ops.function.map_graph", "the order in which a traced model runs"),
    Private("keras.src.ops.node.KerasHistory", "symbolic inputs of a model without inputs of its own"),
    Private("keras.src.ops.operation.Operation._inbound_nodes", "the calls of a layer"),
    Private("keras.src.ops.operation.Operation._outbound_nodes", "the calls that follow"),
    Private("keras.src.trainers.data_adapters.array_slicing.train_validation_split", "validation_split"),
    Private("keras.src.trainers.data_adapters.data_adapter_utils.class_weight_to_sample_weights", "class_weight"),
    Private("keras.src.trainers.data_adapters.data_adapter_utils.unpack_x_y_sample_weight", "what a dataset yields"),
)  # fmt: skip

Model, Sequential, Layer = keras.Model, keras.Sequential, keras.layers.Layer
LSTM, GRU = keras.layers.LSTM, keras.layers.GRU
BatchNormalization = keras.layers.BatchNormalization
activations = keras.activations
STAGED = (Operation, Node)
# A layer opens its name scope once to be built and once to be called.
SCOPES_PER_CALL: int = 2
# `build` of a model gets shapes; the dtypes are in the inputs with which `call` has run before.
BUILDS_FROM_SHAPES: bool = True
registered_names: dict[type, str] = GLOBAL_CUSTOM_NAMES
# Whoever saves or loads first makes a layer, a metric and an optimizer, with variables, to see their attributes.
MAKES_SAMPLES: tuple[Any, str] | None = (saving_lib, "get_attr_skipset")
python_iterables: tuple[type, ...] = (keras.utils.PyDataset,)
unpack = data_adapter_utils.unpack_x_y_sample_weight
split = array_slicing.train_validation_split
_ROW_OPTIMIZERS = {
    keras.optimizers.SGD, keras.optimizers.Adam, keras.optimizers.AdamW, keras.optimizers.Nadam,
    keras.optimizers.Adamax, keras.optimizers.Ftrl, keras.optimizers.Lion, keras.optimizers.Lamb,
    keras.optimizers.Muon,
}  # fmt: skip


def sample_weights(y: Any, class_weight: dict) -> Any:
    if not tf.is_tensor(y):
        return data_adapter_utils.class_weight_to_sample_weights(y, class_weight)
    # Keras looks at values; the elements of a dataset have none yet.
    rank, last = y.shape.rank, y.shape[-1]
    classes = tf.argmax(y, -1) if rank > 1 and last != 1 else tf.cast(tf.squeeze(y, -1) if rank > 1 else y, tf.int64)
    weights = tf.ones_like(classes, tf.float32)
    for number, weight in class_weight.items():
        weights = tf.where(tf.equal(classes, number), tf.cast(weight, tf.float32), weights)
    return weights


def batch_size(examples: int, steps: int | None) -> int:
    return 32


def build(model: Any, spec: Any, mode: str = "train") -> None:
    with model._ipu.strategy.scope():
        if model.compiled and mode != "predict":
            model._symbolic_build(data_batch=spec)
        elif not model.built:
            backend.compute_output_spec(model, _symbolic(unpack(spec)[0]), training=False)


def gradients(model: Any, data: Any) -> tuple[list, dict, dict]:
    x, y, sample_weight = unpack(data)
    captures = getattr(model.optimizer, "supports_captured_grads", False)
    with (GradientCaptureTape if captures else tf.GradientTape)() as tape:
        y_pred = model(x, training=True) if model._call_has_training_arg else model(x)
        loss = model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)
        size = tf.shape(next(i for i in tf.nest.flatten(x) if i is not None))[0]
        model._loss_tracker.update_state(loss_module.unscale_loss_for_distribution(loss), sample_weight=size)
        loss = model.optimizer.scale_loss(loss)
    logs = model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
    if not model.trainable_weights:
        warnings.warn("The model does not have any trainable weights.", stacklevel=2)
        return [], {}, logs
    values = tape.gradient(loss, [v.value for v in model.trainable_weights])
    return values, tape.captured_gradients if isinstance(tape, GradientCaptureTape) else {}, logs


def apply_gradients(model: Any, values: list, captured: dict[str, Any]) -> None:
    extra = {"captured_grads": captured} if captured else {}
    model.optimizer.apply_gradients(zip(values, model.trainable_weights, strict=True), **extra)


def takes_rows(model: Any) -> bool:
    """Whether the optimizer gets an embedding's gradient row by row, a row for each time it was looked up.

    Stock Keras 3 does so and does not sum equal rows first, which changes what the squares of Adam and its kin are.
    The other optimizers look for equal rows with shapes that depend on the data: they get the summed, dense form.
    """
    return type(model.optimizer) in _ROW_OPTIMIZERS


def trainable(model: Any) -> list[tf.Variable]:
    return [v.value for v in model.trainable_weights]


def results(model: Any) -> dict:
    return model.get_metrics_result()


class _Callbacks(CallbackList):
    """Keras' container; numbers are told as they are: Keras would ask TensorFlow about each whether it is a tensor."""

    def _on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not _numbers(logs):
            super()._on_train_batch_end(batch, logs)
            return
        logs = dict(sorted(logs.items()))
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs=logs)

    def _on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if not _numbers(logs):
            super()._on_test_batch_end(batch, logs)
            return
        logs = dict(sorted(logs.items()))
        for callback in self.callbacks:
            callback.on_test_batch_end(batch, logs=logs)


def _numbers(logs: dict[str, Any] | None) -> bool:
    return logs is not None and all(type(value) is float for value in logs.values())


def callback_list(callbacks: Any, **kwargs: Any) -> CallbackList:
    return callbacks if isinstance(callbacks, CallbackList) else _Callbacks(callbacks, **kwargs)


def begin(model: Any, epochs: int, initial_epoch: int) -> tuple[int, int]:
    limit = max_epochs()
    return initial_epoch, min(epochs, limit) if limit else epochs


def resume(model: Any, initial_epoch: int, steps: int) -> int:
    return model._initial_epoch or initial_epoch


def advance(model: Any, mode: str, steps: int) -> None:
    """Keras 3 counts steps in its callbacks."""


def finalise(model: Any) -> None:
    if isinstance(model.optimizer, keras.optimizers.Optimizer):
        model.optimizer.finalize_variable_values(model.trainable_weights)


def flatten_logs(model: Any, logs: dict) -> Any:
    return model._flatten_metrics_in_order(logs)


def steps_per_execution(model: Any) -> int:
    return int(model.steps_per_execution)


def _symbolic(structure: Any) -> Any:
    def to_keras(spec: tf.TensorSpec) -> Any:
        return keras.KerasTensor(tuple(spec.shape), np.dtype(spec.dtype.as_numpy_dtype).name)

    return tf.nest.map_structure(to_keras, structure)


def is_compiled(model: Any) -> bool:
    return model.compiled


def models_being_called() -> list[Any]:
    stack = global_state.get_global_attribute("name_scope_stack") or []
    return [scope.caller for scope in stack if isinstance(scope.caller, Model)]


def belongs_to_sequential(model: Any) -> bool:
    around = [caller for caller in models_being_called() if caller is not model]
    return bool(around) and isinstance(around[-1], Sequential)


def graph_model(model: Any) -> Any | None:
    if isinstance(model, Sequential):
        return model._functional
    return model if isinstance(model, Functional) else None


def nodes(model: Any) -> list[Node]:
    return _in_order(model._nodes_by_depth)


def operation(node: Node) -> Any:
    return node.operation


def node_inputs(node: Node) -> list[Any]:
    return list(node.input_tensors)


def node_outputs(node: Node) -> list[Any]:
    return list(node.outputs)


def arguments(node: Node) -> tuple[tuple, dict[str, Any]]:
    given: Any = node.arguments
    return given.args, given.kwargs


def is_symbolic(value: Any) -> bool:
    return isinstance(value, backend.KerasTensor)


def implied_masks(node: Node) -> list[Any]:
    args, kwargs = arguments(node)
    carried = {id(backend.get_keras_mask(t)) for t in tree.flatten(args) if is_symbolic(t)}
    return [m for m in tree.flatten(kwargs.get("mask")) if id(m) in carried]


def is_layer(thing: Any) -> bool:
    return isinstance(thing, Layer)


def flatten(structure: Any) -> list[Any]:
    return tree.flatten(structure)


def map_structure(function: Callable[[Any], Any], structure: Any) -> Any:
    return tree.map_structure(function, structure)


def shape_and_dtype(tensor: Any) -> tuple[tuple[int | None, ...], str]:
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
    previous = global_state.get_global_attribute("current_call_ctx")
    context = CallContext(entry_layer=model)
    global_state.set_global_attribute("current_call_ctx", context)
    try:
        yield lambda training: context.set_value("training", training)
    finally:
        global_state.set_global_attribute("current_call_ctx", previous)


def scope(model: Any) -> contextlib.AbstractContextManager:
    return model._open_name_scope()


def infer(function: Callable[..., Any], *symbolic: Any) -> Any:
    return backend.compute_output_spec(function, *symbolic)


def argument_order(model: Any, given: Any) -> list[Any]:
    holder = graph_model(model)
    if holder is not None and isinstance(given, dict) and not isinstance(holder._inputs_struct, dict):
        return [given[tensor.name] for tensor in holder.inputs]
    return tree.flatten(given)


def symbolic(model: Any, shape: tuple, dtype: str) -> Any:
    if model.autocast and backend.is_float_dtype(dtype) and backend.is_float_dtype(model.input_dtype):
        dtype = model.input_dtype
    made: Any = backend.KerasTensor(shape, dtype)
    made._keras_history = KerasHistory(operation=None, node_index=0, tensor_index=0)
    return made


def symbolic_like(model: Any, x: Any) -> Any:

    def convert(value: Any) -> Any:
        dtype = getattr(value.dtype, "name", value.dtype)
        return symbolic(model, tuple(value.shape), backend.standardize_dtype(dtype))

    if all(hasattr(value, "dtype") for value in tree.flatten(x)):
        return tree.map_structure(convert, x)
    return tree.map_shape_structure(lambda shape: symbolic(model, tuple(shape), backend.floatx()), x)


def built_shape(model: Any) -> Any:
    shapes = model._build_shapes_dict if model.built else None
    return next(iter(shapes.values())) if shapes and len(shapes) == 1 else None


def takes_training(model: Any) -> bool:
    return model._call_has_training_arg


def trace(
    model: Any, args: tuple, kwargs: dict[str, Any], flat_inputs: list[Any], training: bool | None
) -> tuple[list[Node], Any]:
    # Keras notes in the node what a layer finds out about training from the calls around it.
    with calling(model) as set_training, scope(model):
        set_training(training)
        result = model.call(*args, **kwargs)
    made = [t for t in tree.flatten(result) if is_symbolic(t)]
    return _in_order(map_graph(flat_inputs, made)[1]), result


def forget(traced: Sequence[Node]) -> None:
    for node in traced:
        if node in node.operation._inbound_nodes:
            node.operation._inbound_nodes.remove(node)
        for parent in {id(t._keras_history.operation): t._keras_history.operation for t in node.input_tensors}.values():
            if parent is not None and node in parent._outbound_nodes:
                parent._outbound_nodes.remove(node)


def variables(layer: Any) -> list[Any]:
    return list(layer.variables) if is_layer(layer) else []


def all_layers(model: Any) -> list[Any]:
    return list(model._flatten_layers(include_self=False))


def saved_order(model: Any) -> list[Any]:
    return list(model.operations)


def in_call() -> bool:
    return global_state.get_global_attribute("current_call_ctx") is not None


def _in_order(by_depth: dict[int, list[Node]]) -> list[Node]:
    ordered = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]
    return [node for node in ordered if node.operation is not None and not node.is_input]


def inbound_nodes(layer: Any) -> list[Node]:
    return layer._inbound_nodes


def parents(node: Node) -> list[Any]:
    return [parent.operation for parent in node.parent_nodes]


@contextlib.contextmanager
def fresh_names() -> Iterator[None]:
    """Let layers that are made inside be named as the first of their kind."""
    key = "object_name_uids"
    before = global_state.get_global_attribute(key)
    global_state.set_global_attribute(key, None)
    try:
        yield
    finally:
        global_state.set_global_attribute(key, before)
