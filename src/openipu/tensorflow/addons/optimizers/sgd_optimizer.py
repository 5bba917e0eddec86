"""Stochastic gradient descent."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.addons.keras import registered
from openipu.tensorflow.addons.optimizers.ipu_optimizer_base import IpuOptimizerBase, Slots, dtype_name


@registered
class SGDIpuOptimizer(IpuOptimizerBase):
    """Stock Keras' gradient descent, with the momentum in a type of the user's choice.

    Args:
      learning_rate: may be a schedule.
      momentum: share of the last step that the next one begins with; between 0 and 1.
      nesterov: whether to look ahead.
      name: of the optimizer.
      momentum_accum_dtype: type of the momentum; that of the variable by default.
      **kwargs: as of `IpuOptimizerBase`.
    """

    def __init__(
        self, learning_rate: Any = 0.01, momentum: float = 0.0, nesterov: bool = False, name: str = "SGD",
        momentum_accum_dtype: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        if not 0 <= momentum <= 1:
            raise ValueError(f"`momentum` must be between [0, 1]. Received: momentum={momentum}.")
        super().__init__(name, learning_rate=learning_rate, **kwargs)
        self.momentum, self.nesterov = momentum, nesterov
        self.momentum_accum_dtype = dtype_name(momentum_accum_dtype)

    def _slot_names_of(self) -> tuple[str, ...]:
        return ("momentum",) if self.momentum else ()

    def get_slot_dtype(self, var: Any, slot_name: str) -> Any:
        """The type of the momentum."""
        return self.momentum_accum_dtype or super().get_slot_dtype(var, slot_name)

    def _updated(
        self, variable: Any, weight: tf.Tensor, gradient: tf.Tensor, slots: Slots, rate: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, Slots]:
        change = -rate * gradient
        if not self.momentum:
            return weight + change, slots
        momentum = tf.cast(self.momentum, weight.dtype)
        velocity = momentum * slots["momentum"] + change
        return weight + (momentum * velocity + change if self.nesterov else velocity), {"momentum": velocity}

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        names = ("momentum", "nesterov", "momentum_accum_dtype")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
