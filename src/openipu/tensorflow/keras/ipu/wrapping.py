"""What `keras.ipu` wraps: layers and optimizers of the Keras that `tf.keras` is."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from openipu import environment
from openipu.tensorflow.exceptions import UnsupportedError

if environment.legacy_keras():
    import tf_keras as keras
else:
    import keras

__all__ = ["InnerState", "keras", "refuse_other"]


def refuse_other(opt: Any, *kinds: type) -> None:
    """Refuse what is not an optimizer of this Keras."""
    if not isinstance(opt, kinds):
        raise ValueError(
            f"opt must be a Keras optimizer, of `{keras.__name__}`. Use ipu.optimizers to wrap those of "
            f"tf.compat.v1.train. Received: opt of type {type(opt).__module__}.{type(opt).__name__}."
        )


def _of_inner(name: str) -> property:
    def read(self: Any) -> Any:
        return getattr(self.__dict__.get("inner_optimizer"), name, None)

    def write(self: Any, value: Any) -> None:
        # Keras writes its own default before there is an optimizer inside.
        if "inner_optimizer" in self.__dict__:
            self.set_clipping(name, value)

    return property(read, write, doc=f"`{name}` of the optimizer inside.")


class InnerState:
    """What both Kerases read of an optimizer is that of the one inside, which applies gradients."""

    inner_optimizer: Any
    # (description, custom objects) -> the optimizer inside.
    inner_from_config: Callable[[dict[str, Any], dict[str, Any] | None], Any]

    clipnorm = _of_inner("clipnorm")
    global_clipnorm = _of_inner("global_clipnorm")
    clipvalue = _of_inner("clipvalue")

    variables: Any

    @property
    def learning_rate(self) -> Any:
        """That of the optimizer inside."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        self.inner_optimizer.learning_rate = learning_rate

    @property
    def iterations(self) -> Any:
        """Updates of the optimizer inside."""
        return self.inner_optimizer.iterations

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Any:
        """Makes it again."""
        return cls(**{**config, "opt": cls.inner_from_config(config["opt"], custom_objects)})

    @property
    def weights(self) -> list[Any]:
        """The variables, as optimizers of old programs call them."""
        return list(self.variables)

    def get_weights(self) -> list[np.ndarray]:
        """The values of the variables."""
        return [np.array(variable) for variable in self.weights]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Give the variables values, in the order of `get_weights`."""
        for variable, value in zip(self.weights, weights, strict=True):
            variable.assign(value)

    def get_slot(self, var: Any, slot_name: str) -> Any:
        """As of the optimizer inside."""
        return self._inner_method("get_slot")(var, slot_name)

    def add_slot(self, var: Any, slot_name: str, initializer: Any = "zeros", shape: Any = None) -> Any:
        """As of the optimizer inside."""
        return self._inner_method("add_slot")(var, slot_name, initializer, shape)

    def get_slot_names(self) -> list[str]:
        """As of the optimizer inside."""
        return self._inner_method("get_slot_names")()

    def _inner_method(self, name: str) -> Any:
        method = getattr(self.inner_optimizer, name, None)
        if method is None:
            raise UnsupportedError(
                f"{type(self.inner_optimizer).__name__} of {keras.__name__} has no {name}: only legacy optimizers of "
                "Keras 2 have slots. Look for the state of the optimizer in its `variables`."
            )
        return method

    def set_clipping(self, name: str, value: Any) -> None:
        """Have the optimizer inside clip gradients."""
        setattr(self.inner_optimizer, name, value)
