"""Keras 2 (`tf_keras`): its boundary, and what `KerasVersion` asks of it."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tf_keras
from tf_keras.src import backend
from tf_keras.src.callbacks import CallbackList
from tf_keras.src.engine import base_layer_utils, data_adapter, functional, keras_tensor
from tf_keras.src.engine.functional import Functional
from tf_keras.src.engine.node import Node
from tf_keras.src.engine.training import flatten_metrics_in_order
from tf_keras.src.layers.rnn import gru, lstm  # noqa: F401  (for `recurrent`, which replaces their time loop)
from tf_keras.src.mixed_precision import loss_scale_optimizer
from tf_keras.src.optimizers import nadam as stock_nadam
from tf_keras.src.optimizers import optimizer_v1
from tf_keras.src.optimizers.legacy import optimizer_v2
from tf_keras.src.saving.object_registration import _GLOBAL_CUSTOM_NAMES

from openipu.frameworks import Private
from openipu.tensorflow.keras.versions import nadam
from openipu.tensorflow.ops.emit import capturing
from openipu.tensorflow.ops.gradient_capture import GradientCaptureTape

_ENGINE = "tf_keras.src.engine"
_MODEL = f"{_ENGINE}.training.Model"
_LAYER = f"{_ENGINE}.base_layer.Layer"
_FUNCTION = f"{_ENGINE}.functional.Functional"
_LEGACY = "tf_keras.src.optimizers.legacy.optimizer_v2.OptimizerV2"

TABLE = (
    Private("tf_keras.Model.__new__", "models made in a strategy's scope train on the IPU",
            "the wrapper keeps the original as `__wrapped__`; models made outside of a scope are as they were"),
    Private("tf_keras.Model.from_config", "our entries are taken out of saved configs",
            "the wrapper keeps the original as `__wrapped__`"),
    Private(f"{_LAYER}.__init__", "layers constructed in a PipelineStage belong to it", "when the context ends"),
    Private(f"{_ENGINE}.node.Node.__init__", "layers called in a PipelineStage belong to it", "when the context ends"),
    Private("tf_keras.src.mixed_precision.loss_scale_optimizer.strategy_supports_loss_scaling",
            "it has a list of strategies, and ours is not in it", "other strategies get the answer of the original"),
    Private("tf_keras.src.layers.rnn.lstm.lstm_with_backend_selection",
            "the time loop is the core's kernel while a program is captured",
            "the wrapper keeps the original as `__wrapped__`, and calls it outside of a capture"),
    Private("tf_keras.src.layers.rnn.gru.gru_with_backend_selection", "as for LSTM",
            "the wrapper keeps the original as `__wrapped__`, and calls it outside of a capture"),
    Private("tf_keras.src.optimizers.nadam.Nadam._internal_apply_gradients",
            "the momentum schedule goes one step an update while a program is captured",
            "the wrapper keeps the original as `__wrapped__`, and calls it outside of a capture"),
    Private("tf_keras.src.saving.object_registration._GLOBAL_CUSTOM_NAMES", "our classes are saved as theirs"),
    Private("tf_keras.src.callbacks.CallbackList", "callbacks are called by Keras' own container"),
    Private(f"{_ENGINE}.base_layer_utils.call_context", "which layers are being called, and whether they train"),
    Private(f"{_ENGINE}.data_adapter._make_class_weight_map_fn", "class_weight"),
    Private(f"{_ENGINE}.data_adapter.train_validation_split", "validation_split"),
    Private(f"{_ENGINE}.data_adapter.unpack_x_y_sample_weight", "what a dataset yields"),
    Private(f"{_ENGINE}.functional._map_graph_network", "the order in which a traced model runs"),
    Private(f"{_ENGINE}.keras_tensor.KerasTensor", "what stands for a tensor of the graph"),
    Private(f"{_ENGINE}.training.flatten_metrics_in_order", "what evaluate returns"),
    Private(f"{_FUNCTION}._flatten_to_reference_inputs", "how a model is called"),
    Private(f"{_FUNCTION}._nodes_by_depth", "the order in which a model runs"),
    Private(f"{_LAYER}._autocast", "the dtype in which a model gets its inputs"),
    Private(f"{_LAYER}._compute_dtype", "the dtype in which a model gets its inputs"),
    Private(f"{_LAYER}._expects_training_arg", "whether `call` takes `training`"),
    Private(f"{_LAYER}._flatten_layers", "all layers of a model"),
    Private(f"{_LAYER}._inbound_nodes", "the calls of a layer"),
    Private(f"{_LAYER}._outbound_nodes", "the calls that follow"),
    Private(f"{_MODEL}._build_input_shape", "what a model was built for"),
    Private(f"{_MODEL}._saved_model_inputs_spec", "what a model that was loaded takes"),
    Private(f"{_MODEL}._is_compiled", "whether `compile` was called"),
    Private(f"{_MODEL}._maybe_load_initial_counters_from_ckpt", "trainings that were interrupted go on"),
    Private(f"{_MODEL}._steps_per_execution", "steps of one execution"),
    Private(f"{_MODEL}._train_counter", "callbacks look for the number of steps there"),
    Private(f"{_MODEL}._validate_target_and_loss", "a model without loss is refused as Keras refuses it"),
    Private(f"{_LEGACY}._create_hypers", "variables of the optimizer are made before the first step"),
    Private(f"{_LEGACY}._create_slots", "variables of the optimizer are made before the first step"),
    Private(f"{_LEGACY}._restore_slot_variable", "state of an optimizer that is made after a checkpoint was restored"),
    Private("tf_keras.src.optimizers.legacy.optimizer_v2._var_key", "state of an optimizer is found by its variable"),
    Private("tf_keras.src.optimizers.optimizer_v1.TFOptimizer", "optimizers of tf.compat.v1.train, as it wraps them"),
    Private("tensorflow.compat.v1.train.Optimizer._create_slots", "as for the optimizers of Keras"),
)  # fmt: skip

Model, Sequential, Layer = tf_keras.Model, tf_keras.Sequential, tf_keras.layers.Layer
STAGED = (Layer, Node)
SCOPES_PER_CALL: int = 1
# `build` would make float inputs of the shapes.
BUILDS_FROM_SHAPES: bool = False
registered_names: dict[type, str] = _GLOBAL_CUSTOM_NAMES
MAKES_SAMPLES: tuple[Any, str] | None = None
python_iterables: tuple[type, ...] = (tf_keras.utils.Sequence,)
unpack = data_adapter.unpack_x_y_sample_weight
split = data_adapter.train_validation_split
_stock_supports_loss_scaling = loss_scale_optimizer.strategy_supports_loss_scaling


def _supports_loss_scaling() -> bool:
    """Keras 2 has a list of the strategies that may scale losses; ours says so itself."""
    return getattr(tf.distribute.get_strategy(), "supports_loss_scaling", False) or _stock_supports_loss_scaling()


loss_scale_optimizer.strategy_supports_loss_scaling = _supports_loss_scaling
stock_nadam.Nadam._internal_apply_gradients = nadam.once_an_update(
    stock_nadam.Nadam._internal_apply_gradients, capturing
)


def sample_weights(y: Any, class_weight: dict) -> Any:
    weigh = data_adapter._make_class_weight_map_fn(class_weight)
    return weigh(tf.zeros(1), tf.convert_to_tensor(y))[2]


def batch_size(examples: int, steps: int | None) -> int:
    return -(-examples // steps) if steps else 32


def build(model: Any, spec: Any, mode: str = "train") -> None:
    with model._ipu.strategy.scope():
        _build(model, spec, mode)


def _build(model: Any, spec: Any, mode: str) -> None:
    if not model._is_compiled or mode == "predict":
        if not model.built:
            tf.function(lambda x: model(x, training=False)).get_concrete_function(unpack(spec)[0])
        return

    @tf.function(autograph=False)
    def first_call(data: Any) -> None:
        x, y, sample_weight = unpack(data)
        y_pred = model(x, training=False)
        model.compute_loss(x, y, y_pred, sample_weight)
        model.compute_metrics(x, y, y_pred, sample_weight)

    if not (model.built and model.compiled_loss.built and model.compiled_metrics.built):
        first_call.get_concrete_function(spec)
    build_optimizer(model.optimizer, model.trainable_variables)


def build_optimizer(optimizer: Any, variables: Sequence[tf.Variable]) -> None:
    """Create the variables of an optimizer of any kind, or of none."""
    with tf.init_scope():
        if isinstance(optimizer, loss_scale_optimizer.LossScaleOptimizer):
            build_optimizer(optimizer.inner_optimizer, variables)
        elif isinstance(optimizer, optimizer_v2.OptimizerV2):
            optimizer.iterations  # noqa: B018 - creates the counter
            optimizer._create_hypers()
            optimizer._create_slots(variables)
        elif isinstance(optimizer, optimizer_v1.TFOptimizer):
            # An optimizer of tf.compat.v1.train.
            optimizer.optimizer._create_slots(variables)
        elif optimizer is not None:
            optimizer.build(variables)


def keep_slot(optimizer: Any, variable: Any, name: str, slot: tf.Variable) -> None:
    """Let a variable be part of the state of an optimizer, where checkpoints look for it."""
    if name not in optimizer._slot_names:
        optimizer._slot_names.append(name)
    optimizer._slots.setdefault(optimizer_v2._var_key(variable), {})[name] = slot
    optimizer._restore_slot_variable(slot_name=name, variable=variable, slot_variable=slot)
    optimizer._weights.append(slot)


def gradients(model: Any, data: Any) -> tuple[list, dict, dict]:
    x, y, sample_weight = unpack(data)
    captures = getattr(model.optimizer, "supports_captured_grads", False)
    with (GradientCaptureTape if captures else tf.GradientTape)() as tape:
        y_pred = model(x, training=True)
        loss = model.compute_loss(x, y, y_pred, sample_weight)
        if hasattr(model.optimizer, "get_scaled_loss"):
            loss = model.optimizer.get_scaled_loss(loss)
    model._validate_target_and_loss(y, loss)
    values = tape.gradient(loss, model.trainable_variables)
    if hasattr(model.optimizer, "get_unscaled_gradients"):
        values = model.optimizer.get_unscaled_gradients(values)
    captured = tape.captured_gradients if isinstance(tape, GradientCaptureTape) else {}
    return values, captured, model.compute_metrics(x, y, y_pred, sample_weight)


def takes_rows(model: Any) -> bool:
    """Keras 2 sums equal rows of an embedding's gradient, as the dense form does, so optimizers get that."""
    return False


def apply_gradients(model: Any, values: list, captured: dict[str, Any]) -> None:
    extra = {"captured_grads": captured} if captured else {}
    model.optimizer.apply_gradients(zip(values, model.trainable_variables, strict=True), **extra)


def trainable(model: Any) -> list[tf.Variable]:
    return list(model.trainable_variables)


def results(model: Any) -> dict:
    return model.get_metrics_result()


def callback_list(callbacks: Any, **kwargs: Any) -> CallbackList:
    return callbacks if isinstance(callbacks, CallbackList) else CallbackList(callbacks, **kwargs)


def begin(model: Any, epochs: int, initial_epoch: int) -> tuple[int, int]:
    model._train_counter.assign(0)
    return initial_epoch, epochs


def resume(model: Any, initial_epoch: int, steps: int) -> int:
    return model._maybe_load_initial_counters_from_ckpt(steps, initial_epoch)[0]


def advance(model: Any, mode: str, steps: int) -> None:
    getattr(model, f"_{mode}_counter").assign_add(steps)


def finalise(model: Any) -> None:
    if hasattr(model.optimizer, "finalize_variable_values"):
        model.optimizer.finalize_variable_values(model.trainable_variables)


def flatten_logs(model: Any, logs: dict) -> Any:
    return flatten_metrics_in_order(logs, model.metrics_names)


def steps_per_execution(model: Any) -> int:
    return int(model._steps_per_execution.numpy()) if model._steps_per_execution is not None else 1


def is_compiled(model: Any) -> bool:
    return model._is_compiled


def models_being_called() -> list[Any]:
    layer = base_layer_utils.call_context().layer
    return [layer] if isinstance(layer, Model) else []


def belongs_to_sequential(model: Any) -> bool:
    """Sequential models of Keras 2 keep their graph themselves."""
    return isinstance(model, Sequential)


def graph_model(model: Any) -> Any | None:
    """The model itself, once it has a graph."""
    return model if isinstance(model, Functional) and getattr(model, "_nodes_by_depth", None) else None


def nodes(model: Any) -> list[Node]:
    return _in_order(model._nodes_by_depth)


def operation(node: Node) -> Any:
    return node.layer


def node_inputs(node: Node) -> list[Any]:
    return list(node.keras_inputs)


def node_outputs(node: Node) -> list[Any]:
    return tf.nest.flatten(node.outputs)


def arguments(node: Node) -> tuple[tuple, dict[str, Any]]:
    return tuple(node.call_args), dict(node.call_kwargs)


def is_symbolic(value: Any) -> bool:
    return isinstance(value, keras_tensor.KerasTensor)


def implied_masks(node: Node) -> list[Any]:
    """Keras 2 finds masks when a layer is called and puts none into the graph."""
    return []


def is_layer(thing: Any) -> bool:
    """Everything in a graph of Keras 2 is a layer."""
    return isinstance(thing, Layer)


def flatten(structure: Any) -> list[Any]:
    return tf.nest.flatten(structure)


def map_structure(function: Callable[[Any], Any], structure: Any) -> Any:
    return tf.nest.map_structure(function, structure)


def shape_and_dtype(tensor: Any) -> tuple[tuple[int | None, ...], str]:
    return tuple(tensor.shape), tensor.dtype.name


def run(node: Node, values: dict[int, Any], training: bool | None, force: bool) -> list[Any]:
    """Run one call again on values; layers find `training` in the context of the call."""
    # Keras takes a value out of its list for every use; there is one list for each use here.
    uses = {str(key): [value] * len(node.flat_input_ids) for key, value in values.items()}
    args, kwargs = node.map_arguments(uses)
    return tf.nest.flatten(node.layer(*args, **kwargs))


@contextlib.contextmanager
def calling(model: Any) -> Iterator[Callable[[bool | None], None]]:
    context = base_layer_utils.call_context()
    given: dict[str, Any] = {}
    with context.enter(model, None, build_graph=False, call_context_args=given):
        yield lambda training: given.update(training=training)


def scope(model: Any) -> contextlib.AbstractContextManager:
    return tf.name_scope(model.name)


def infer(function: Callable[..., Any], *symbolic: Any) -> Any:
    specs = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), symbolic)
    traced = tf.function(lambda *values: function(*values), autograph=False)
    return traced.get_concrete_function(*specs).structured_outputs


def argument_order(model: Any, given: Any) -> list[Any]:
    holder = graph_model(model)
    return tf.nest.flatten(given) if holder is None else holder._flatten_to_reference_inputs(given)


def symbolic(model: Any, shape: tuple, dtype: str) -> Any:
    if model._autocast and tf.as_dtype(dtype).is_floating and model._compute_dtype is not None:
        dtype = model._compute_dtype
    return tf_keras.Input(batch_shape=shape, dtype=dtype)


def symbolic_like(model: Any, x: Any) -> Any:
    if all(hasattr(value, "dtype") for value in tf.nest.flatten(x)):
        return tf.nest.map_structure(lambda v: symbolic(model, tuple(v.shape), tf.as_dtype(v.dtype).name), x)
    if isinstance(x, (tuple, list, tf.TensorShape)) and all(d is None or isinstance(d, int) for d in x):
        return symbolic(model, tuple(x), backend.floatx())
    if isinstance(x, dict):
        return {name: symbolic_like(model, shape) for name, shape in x.items()}
    return [symbolic_like(model, shape) for shape in x]


def built_shape(model: Any) -> Any:
    shape = model._build_input_shape if model.built else None
    # A model that was loaded from a SavedModel has the specs of its inputs instead.
    return model._saved_model_inputs_spec if shape is None else shape


def takes_training(model: Any) -> bool:
    return model._expects_training_arg


def trace(
    model: Any, args: tuple, kwargs: dict[str, Any], flat_inputs: list[Any], training: bool | None
) -> tuple[list[Node], Any]:
    result = model.call(*args, **kwargs)
    made = [t for t in tf.nest.flatten(result) if is_symbolic(t)]
    return _in_order(functional._map_graph_network(flat_inputs, made)[1]), result


def forget(traced: Sequence[Node]) -> None:
    for node in traced:
        if node in node.layer._inbound_nodes:
            node.layer._inbound_nodes.remove(node)
        for parent in {id(t._keras_history.layer): t._keras_history.layer for t in node.keras_inputs}.values():
            if node in parent._outbound_nodes:
                parent._outbound_nodes.remove(node)


def variables(layer: Any) -> list[Any]:
    return list(layer.variables)


def all_layers(model: Any) -> list[Any]:
    return list(model._flatten_layers(include_self=False))


def saved_order(model: Any) -> list[Any]:
    return list(model.layers)


def in_call() -> bool:
    return base_layer_utils.call_context().in_call


def _in_order(by_depth: dict[int, list[Node]]) -> list[Node]:
    return [n for depth in sorted(by_depth, reverse=True) for n in by_depth[depth] if not n.is_input]


def inbound_nodes(layer: Any) -> list[Node]:
    return layer._inbound_nodes


def parents(node: Node) -> list[Any]:
    return [parent.layer for parent in node.parent_nodes]


def fresh_names() -> contextlib.AbstractContextManager[None]:
    """Every graph names its layers anew by itself."""
    return contextlib.nullcontext()
