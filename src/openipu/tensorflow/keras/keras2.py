"""What differs in Keras 2 (`tf_keras`): the same functions as in `keras3`."""

from typing import Any

import tensorflow as tf
import tf_keras
from tf_keras.src.callbacks import CallbackList
from tf_keras.src.engine import data_adapter
from tf_keras.src.engine.training import flatten_metrics_in_order
from tf_keras.src.mixed_precision import loss_scale_optimizer
from tf_keras.src.optimizers.legacy import optimizer_v2

Model, Sequential = tf_keras.Model, tf_keras.Sequential
Functional = tf_keras.src.engine.functional.Functional
registered_names: dict[type, str] = tf_keras.src.saving.object_registration._GLOBAL_CUSTOM_NAMES
python_iterables: tuple[type, ...] = (tf_keras.utils.Sequence,)
unpack = data_adapter.unpack_x_y_sample_weight
split = data_adapter.train_validation_split

_stock_supports_loss_scaling = loss_scale_optimizer.strategy_supports_loss_scaling


def _supports_loss_scaling() -> bool:
    """Keras 2 has a list of the strategies that may scale losses; ours says so itself."""
    return getattr(tf.distribute.get_strategy(), "supports_loss_scaling", False) or _stock_supports_loss_scaling()


loss_scale_optimizer.strategy_supports_loss_scaling = _supports_loss_scaling


def sample_weights(y: Any, class_weight: dict) -> Any:
    """The weight of every example, by its class."""
    weigh = data_adapter._make_class_weight_map_fn(class_weight)
    return weigh(tf.zeros(1), tf.convert_to_tensor(y))[2]


def build(model: Any, spec: Any, mode: str = "train") -> None:
    """Create every variable of the model and, unless it predicts, of its loss, metrics and optimizer."""
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
    optimizer = model.optimizer
    with tf.init_scope():
        if isinstance(optimizer, optimizer_v2.OptimizerV2):
            optimizer.iterations  # noqa: B018 - creates the counter
            optimizer._create_hypers()
            optimizer._create_slots(model.trainable_variables)
        elif optimizer is not None:
            optimizer.build(model.trainable_variables)


def gradients(model: Any, data: Any) -> tuple[list, dict]:
    """Trace forward, loss, metrics and gradients of one micro-batch."""
    x, y, sample_weight = unpack(data)
    with tf.GradientTape() as tape:
        y_pred = model(x, training=True)
        loss = model.compute_loss(x, y, y_pred, sample_weight)
        if hasattr(model.optimizer, "get_scaled_loss"):
            loss = model.optimizer.get_scaled_loss(loss)
    model._validate_target_and_loss(y, loss)
    values = tape.gradient(loss, model.trainable_variables)
    if hasattr(model.optimizer, "get_unscaled_gradients"):
        values = model.optimizer.get_unscaled_gradients(values)
    return values, model.compute_metrics(x, y, y_pred, sample_weight)


def takes_rows(model: Any) -> bool:
    """Keras 2 sums equal rows of an embedding's gradient, as the dense form does, so optimizers get that."""
    return False


def apply_gradients(model: Any, values: list) -> None:
    """Trace the optimizer's update."""
    model.optimizer.apply_gradients(zip(values, model.trainable_variables, strict=True))


def trainable(model: Any) -> list[tf.Variable]:
    """The variables that are trained."""
    return list(model.trainable_variables)


def results(model: Any) -> dict:
    """Trace the current results of all metrics."""
    return model.get_metrics_result()


def callback_list(callbacks: Any, **kwargs: Any) -> CallbackList:
    """The container that calls callbacks; one made earlier is used as it is."""
    return callbacks if isinstance(callbacks, CallbackList) else CallbackList(callbacks, **kwargs)


def begin(model: Any, epochs: int, initial_epoch: int) -> tuple[int, int]:
    """The epochs to train, from and to."""
    model._train_counter.assign(0)
    return initial_epoch, epochs


def resume(model: Any, initial_epoch: int, steps: int) -> int:
    """The first epoch, once a callback may have restored an interrupted training."""
    return model._maybe_load_initial_counters_from_ckpt(steps, initial_epoch)[0]


def advance(model: Any, mode: str, steps: int) -> None:
    """Count steps where callbacks look for them."""
    getattr(model, f"_{mode}_counter").assign_add(steps)


def finalise(model: Any) -> None:
    """After training: averaged weights become the weights, if the optimizer averages."""
    if hasattr(model.optimizer, "finalize_variable_values"):
        model.optimizer.finalize_variable_values(model.trainable_variables)


def flatten_logs(model: Any, logs: dict) -> Any:
    """Logs as the scalar or list that `evaluate` returns."""
    flat = flatten_metrics_in_order(logs, model.metrics_names)
    return flat[0] if len(flat) == 1 else flat


def steps_per_execution(model: Any) -> int:
    """Steps of one execution, as compiled."""
    return int(model._steps_per_execution.numpy()) if model._steps_per_execution is not None else 1


def is_compiled(model: Any) -> bool:
    """Whether `compile` was called."""
    return model._is_compiled
