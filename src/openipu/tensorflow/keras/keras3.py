"""What differs in Keras 3: how a model is built, its step traced, its optimizer applied, its results read."""

import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.config import max_epochs
from keras.src.callbacks.callback_list import CallbackList
from keras.src.losses import loss as loss_module
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils

Model, Sequential = keras.Model, keras.Sequential
Functional = keras.src.models.functional.Functional
registered_names: dict[type, str] = keras.src.saving.object_registration.GLOBAL_CUSTOM_NAMES
python_iterables: tuple[type, ...] = (keras.utils.PyDataset,)
unpack = data_adapter_utils.unpack_x_y_sample_weight
split = array_slicing.train_validation_split
_ROW_OPTIMIZERS = {
    keras.optimizers.SGD, keras.optimizers.Adam, keras.optimizers.AdamW, keras.optimizers.Nadam,
    keras.optimizers.Adamax, keras.optimizers.Ftrl, keras.optimizers.Lion, keras.optimizers.Lamb,
    keras.optimizers.Muon,
}  # fmt: skip
sample_weights = data_adapter_utils.class_weight_to_sample_weights


def build(model: Any, spec: Any, mode: str = "train") -> None:
    """Create every variable of the model and, unless it predicts, of its loss, metrics and optimizer."""
    with model._ipu.strategy.scope():
        if model.compiled and mode != "predict":
            model._symbolic_build(data_batch=spec)
        elif not model.built:
            keras.src.backend.compute_output_spec(model, _symbolic(unpack(spec)[0]), training=False)


def gradients(model: Any, data: Any) -> tuple[list, dict]:
    """Trace forward, loss, metrics and gradients of one micro-batch."""
    x, y, sample_weight = unpack(data)
    with tf.GradientTape() as tape:
        y_pred = model(x, training=True) if model._call_has_training_arg else model(x)
        loss = model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)
        size = tf.shape(next(i for i in tf.nest.flatten(x) if i is not None))[0]
        model._loss_tracker.update_state(loss_module.unscale_loss_for_distribution(loss), sample_weight=size)
        loss = model.optimizer.scale_loss(loss)
    logs = model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
    if not model.trainable_weights:
        warnings.warn("The model does not have any trainable weights.", stacklevel=2)
        return [], logs
    return tape.gradient(loss, [v.value for v in model.trainable_weights]), logs


def apply_gradients(model: Any, values: list) -> None:
    """Trace the optimizer's update."""
    model.optimizer.apply_gradients(zip(values, model.trainable_weights, strict=True))


def takes_rows(model: Any) -> bool:
    """Whether the optimizer gets an embedding's gradient row by row, a row for each time it was looked up.

    Stock Keras 3 does so and does not sum equal rows first, which changes what the squares of Adam and its kin are.
    The other optimizers look for equal rows with shapes that depend on the data: they get the summed, dense form.
    """
    return type(model.optimizer) in _ROW_OPTIMIZERS


def trainable(model: Any) -> list[tf.Variable]:
    """The variables that are trained."""
    return [v.value for v in model.trainable_weights]


def results(model: Any) -> dict:
    """Trace the current results of all metrics."""
    return model.get_metrics_result()


def callback_list(callbacks: Any, **kwargs: Any) -> CallbackList:
    """The container that calls callbacks; one made earlier is used as it is."""
    return callbacks if isinstance(callbacks, CallbackList) else CallbackList(callbacks, **kwargs)


def begin(model: Any, epochs: int, initial_epoch: int) -> tuple[int, int]:
    """The epochs to train, from and to."""
    limit = max_epochs()
    return initial_epoch, min(epochs, limit) if limit else epochs


def resume(model: Any, initial_epoch: int, steps: int) -> int:
    """The first epoch, once a callback may have restored an interrupted training."""
    return model._initial_epoch or initial_epoch


def advance(model: Any, mode: str, steps: int) -> None:
    """Keras 3 counts steps in its callbacks."""


def finalise(model: Any) -> None:
    """After training: averaged weights become the weights, if the optimizer averages."""
    if isinstance(model.optimizer, keras.optimizers.Optimizer):
        model.optimizer.finalize_variable_values(model.trainable_weights)


def flatten_logs(model: Any, logs: dict) -> Any:
    """Logs as the scalar or list that `evaluate` returns."""
    return model._flatten_metrics_in_order(logs)


def steps_per_execution(model: Any) -> int:
    """Steps of one execution, as compiled."""
    return int(model.steps_per_execution)


def _symbolic(structure: Any) -> Any:
    def to_keras(spec: tf.TensorSpec) -> Any:
        return keras.KerasTensor(tuple(spec.shape), np.dtype(spec.dtype.as_numpy_dtype).name)

    return tf.nest.map_structure(to_keras, structure)


def is_compiled(model: Any) -> bool:
    """Whether `compile` was called."""
    return model.compiled
