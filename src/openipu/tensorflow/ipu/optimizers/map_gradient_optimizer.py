"""Gradients changed by a function before they are applied."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from openipu.tensorflow.ipu.optimizers.ipu_optimizer import IpuOptimizer

__all__ = ["MapGradientOptimizer"]


class MapGradientOptimizer(IpuOptimizer):
    """Replaces every gradient by a function of it and the variable's value.

    Args:
      wrapped_optimizer: a `tf.compat.v1.train` optimizer.
      gradient_mapping_function: (gradient, value of the variable) -> gradient.
      name: of this one.
    """

    def __init__(
        self,
        wrapped_optimizer: tf.compat.v1.train.Optimizer,
        gradient_mapping_function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
        name: str = "MapGradientOptimizer",
    ) -> None:
        super().__init__(wrapped_optimizer, name)
        self._mapping = gradient_mapping_function

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> list[tuple[Any, tf.Variable]]:
        """The mapped gradients of the optimizer inside."""
        found = self._opt.compute_gradients(loss, var_list=var_list, **kwargs)
        return [(None if grad is None else self._mapping(grad, var.value()), var) for grad, var in found]
