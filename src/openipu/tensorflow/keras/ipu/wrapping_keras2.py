"""A Keras 2 optimizer around another one, of the current or of the legacy kind."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from openipu.tensorflow.keras.ipu.wrapping import InnerState, refuse_other
from openipu.tensorflow.keras.versions import keras2

Variables = Sequence[Any]


class WrappingOptimizer(InnerState, tf_keras.optimizers.Optimizer):
    """Passes everything on to the optimizer inside."""

    def __init__(self, opt: Any, name: str | None = None) -> None:
        refuse_other(opt, tf_keras.optimizers.Optimizer, tf_keras.optimizers.legacy.Optimizer)
        super().__init__(name=name or type(self).__name__)
        self.inner_optimizer = opt

    def build(self, var_list: Variables) -> None:
        """Makes the variables of both optimizers."""
        keras2.build_optimizer(self.inner_optimizer, var_list)
        super().build(var_list)

    def _own_variable(self, name: str, value: np.ndarray) -> tf.Variable:
        """A variable of this optimizer's own, with a value."""
        initializer: Any = lambda shape, dtype: tf.constant(value)  # noqa: E731 - Keras' own type is too narrow
        return self.add_variable(value.shape, value.dtype, initializer, name)

    @property
    def variables(self) -> list[Any]:
        """Those of both optimizers."""
        inner = self.inner_optimizer.variables
        # The list of Keras 2 may also be called.
        both = super().variables
        both.extend(inner() if callable(inner) else inner)
        return both

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
        """Gives the gradients to the optimizer inside."""
        given = [(grad, var) for grad, var in grads_and_vars if grad is not None]
        self.build([var for _, var in given])
        self._apply([tf.convert_to_tensor(grad) for grad, _ in given], [var for _, var in given])
        return self.iterations

    def _apply(self, gradients: list[tf.Tensor], variables: list[Any]) -> None:
        self.inner_optimizer.apply_gradients(zip(gradients, variables, strict=True))

    def get_scaled_loss(self, loss: Any) -> Any:
        """As the optimizer inside does."""
        scaled = getattr(self.inner_optimizer, "get_scaled_loss", None)
        return loss if scaled is None else scaled(loss)

    def get_unscaled_gradients(self, gradients: list) -> list:
        """As the optimizer inside does."""
        unscaled = getattr(self.inner_optimizer, "get_unscaled_gradients", None)
        return gradients if unscaled is None else unscaled(gradients)

    def compute_gradients(self, loss: Any, var_list: Variables, tape: tf.GradientTape | None = None) -> list:
        """The gradients of the scaled loss."""
        if callable(loss):
            return super().compute_gradients(lambda: self.get_scaled_loss(loss()), var_list, tape)
        with tape or tf.GradientTape():
            scaled = self.get_scaled_loss(loss)
        return super().compute_gradients(scaled, var_list, tape)

    def finalize_variable_values(self, var_list: Variables) -> None:
        """As the optimizer inside does."""
        if hasattr(self.inner_optimizer, "finalize_variable_values"):
            self.inner_optimizer.finalize_variable_values(var_list)

    def get_config(self) -> dict[str, Any]:
        """What is needed to make it again."""
        return {"name": self.name, "opt": tf_keras.optimizers.serialize(self.inner_optimizer)}

    @staticmethod
    def inner_from_config(config: dict[str, Any], custom_objects: dict[str, Any] | None) -> Any:
        """Makes the optimizer inside again."""
        return tf_keras.optimizers.deserialize(config, custom_objects=custom_objects)

    @staticmethod
    def rate_from_config(config: Any, custom_objects: dict[str, Any] | None) -> Any:
        """A learning rate, or a schedule of it, from what describes it."""
        if not isinstance(config, dict):
            return config
        return tf_keras.optimizers.schedules.deserialize(config, custom_objects)

    @staticmethod
    def values(variables: Variables) -> list[tf.Variable]:
        """They are TensorFlow's own."""
        return list(variables)
