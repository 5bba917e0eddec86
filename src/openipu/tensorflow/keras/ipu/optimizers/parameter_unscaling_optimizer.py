"""Automatic loss scaling with gradients that stay scaled: the factor is part of the update rule, in float32."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.keras.ipu.optimizers.als_optimizer import ALSOptimizer
from openipu.tensorflow.ops.loss_scaling import NAMES


class _State:
    """The slots of each variable; Keras would track a dictionary, and cannot track one with such keys."""

    def __init__(self) -> None:
        self.slots: dict[Any, dict[str, tf.Variable]] = {}


class ParameterUnscalingALSOptimizer(ALSOptimizer):
    """The base: the optimizer inside has the learning rate and counts updates, the rule and its state are here.

    Args:
      learning_rate: a number, or a schedule.
      opt: the Keras optimizer with the same rule.
      scaling, by_name: arguments of the loss scaling, and the name.
    """

    def __init__(self, learning_rate: Any, opt: Any, *scaling: Any, **by_name: Any) -> None:
        super().__init__(opt, *scaling, **by_name)
        self._schedule = learning_rate if callable(learning_rate) else None
        self._state = _State()

    def slot_names(self) -> tuple[str, ...]:
        """The state that every variable has."""
        raise NotImplementedError

    def step(
        self, gradient: tf.Tensor, slots: dict[str, tf.Variable], rate: tf.Tensor, sigma: tf.Tensor, ratio: tf.Tensor
    ) -> tf.Tensor:
        """Update the slots and return what is to be taken from the variable.

        Args:
          gradient: of the scaled loss, in float32.
          slots: the state, which is scaled like gradients.
          rate: the learning rate.
          sigma: the factor of the loss that the gradient is of.
          ratio: sigma over that of the gradients before, by which the state is scaled.
        """
        raise NotImplementedError

    def build(self, variables: Sequence[Any]) -> None:
        """Makes the variables of both optimizers, and the slots."""
        super().build(variables)
        with tf.init_scope():
            for variable in self.values(variables):
                if variable.ref() not in self._state.slots:
                    made = {name: self._own_variable(name, _zeros_like(variable)) for name in self.slot_names()}
                    self._state.slots[variable.ref()] = made

    def get_slot(self, var: Any, slot_name: str) -> tf.Variable:
        """The state of a variable."""
        return self._state.slots[self.values([var])[0].ref()][slot_name]

    def get_slot_names(self) -> list[str]:
        """The names of the state of a variable."""
        return list(self.slot_names())

    def _apply(self, gradients: list[tf.Tensor], variables: list[Any]) -> None:
        sigma = tf.convert_to_tensor(self._scale.factor)
        ratio = sigma / tf.convert_to_tensor(self._scale.previous)
        self._scale.advance(gradients)
        # Keras 2 asks a schedule only when the optimizer inside applies gradients.
        rate = _float32(self.learning_rate if self._schedule is None else self._schedule(self.iterations))
        for gradient, variable in zip(gradients, self.values(variables), strict=True):
            taken = self.step(_float32(gradient), self._state.slots[variable.ref()], rate, sigma, ratio)
            variable.assign(tf.cast(_float32(variable) - taken, variable.dtype))
        self.iterations.assign_add(1)

    def set_clipping(self, name: str, value: Any) -> None:
        """Refused: gradients are applied as they are, scaled."""
        if value is not None:
            raise UnsupportedError(
                f"{type(self).__name__} does not clip gradients, which stay scaled. Use ALSOptimizer around an "
                f"optimizer with {name}. Received: {name}={value!r}."
            )

    @property
    def updates(self) -> tf.Tensor:
        """The number of this update, from one on."""
        return _float32(self.iterations) + 1

    def get_config(self) -> dict[str, Any]:
        """What is needed to make it again."""
        config = super().get_config()
        inner = self.inner_optimizer.get_config()
        return {**{name: config[name] for name in (*NAMES, "name")}, **{name: inner[name] for name in self.rule}}

    # The arguments of the rule, by which it is made again.
    rule: tuple[str, ...] = ()

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Any:
        """Makes it again."""
        rate = cls.rate_from_config(config["learning_rate"], custom_objects)
        return cls(**{**config, "learning_rate": rate})


def _float32(value: Any) -> tf.Tensor:
    """A value as a float32 tensor."""
    return tf.cast(value, tf.float32)


def _zeros_like(variable: tf.Variable) -> np.ndarray:
    """Float32 zeros of a variable's shape."""
    shape: Any = variable.shape  # Variables here have known shapes, which the type does not say.
    return np.zeros(tuple(shape), np.float32)
