"""A Keras 3 optimizer around another one."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from openipu.tensorflow.keras.ipu.wrapping import InnerState, refuse_other

Variables = Sequence[Any]


class WrappingOptimizer(InnerState, keras.optimizers.Optimizer):
    """Passes everything on to the optimizer inside."""

    def __init__(self, opt: keras.optimizers.Optimizer, name: str | None = None) -> None:
        refuse_other(opt, keras.optimizers.Optimizer)
        super().__init__(learning_rate=0.0, name=name or type(self).__name__)
        self.inner_optimizer = opt

    def build(self, variables: Variables) -> None:
        """Makes the variables of both optimizers."""
        if not self.inner_optimizer.built:
            self.inner_optimizer.build(variables)
        super().build(variables)

    @property
    def variables(self) -> list[Any]:
        """Those of both optimizers."""
        return [*self._variables, *self.inner_optimizer.variables]

    def _own_variable(self, name: str, value: np.ndarray) -> tf.Variable:
        """A variable of this optimizer's own, with a value."""
        initializer: Any = lambda shape, dtype: value  # noqa: E731 - Keras' own type is too narrow
        return self.add_variable(value.shape, initializer, value.dtype.name, name=name).value

    def apply(self, grads: Sequence[Any], trainable_variables: Variables | None = None) -> None:
        """Gives the gradients to the optimizer inside."""
        variables: list[Any] = list(self._trainable_variables if trainable_variables is None else trainable_variables)
        if not self.built:
            self.build(variables)
        given = [(grad, var) for grad, var in zip(grads, variables, strict=True) if grad is not None]
        self._apply([tf.convert_to_tensor(grad) for grad, _ in given], [var for _, var in given])

    def _apply(self, gradients: list[tf.Tensor], variables: list[Any]) -> None:
        self.inner_optimizer.apply(gradients, variables)

    def scale_loss(self, loss: Any) -> Any:
        """As the optimizer inside does."""
        return self.inner_optimizer.scale_loss(loss)

    def get_scaled_loss(self, loss: Any) -> Any:
        """As the optimizer inside does."""
        return self.scale_loss(loss)

    def finalize_variable_values(self, var_list: Variables) -> None:
        """As the optimizer inside does."""
        self.inner_optimizer.finalize_variable_values(var_list)

    def get_config(self) -> dict[str, Any]:
        """What is needed to make it again."""
        return {"name": self.name, "opt": keras.saving.serialize_keras_object(self.inner_optimizer)}

    @staticmethod
    def inner_from_config(config: dict[str, Any], custom_objects: dict[str, Any] | None) -> Any:
        """Makes the optimizer inside again."""
        return keras.saving.deserialize_keras_object(config, custom_objects=custom_objects)

    @staticmethod
    def rate_from_config(config: Any, custom_objects: dict[str, Any] | None) -> Any:
        """A learning rate, or a schedule of it, from what describes it."""
        return keras.saving.deserialize_keras_object(config, custom_objects) if isinstance(config, dict) else config

    @staticmethod
    def values(variables: Variables) -> list[tf.Variable]:
        """The variables of TensorFlow behind those of Keras."""
        return [var.value for var in variables]
