"""Keras optimizers that wrap another one: mapping of gradients, and their mean over replicas."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from openipu import environment
from openipu.tensorflow.ops import collectives

if TYPE_CHECKING or not environment.legacy_keras():
    from openipu.tensorflow.keras.ipu.wrapping_keras3 import WrappingOptimizer
else:
    from openipu.tensorflow.keras.ipu.wrapping_keras2 import WrappingOptimizer

__all__ = ["CrossReplicaOptimizer", "IpuOptimizer", "MapGradientOptimizer"]


class IpuOptimizer(WrappingOptimizer):
    """Passes everything on to the optimizer inside.

    Args:
      opt: a Keras optimizer.
      name: of this one.
    """


class CrossReplicaOptimizer(IpuOptimizer):
    """Applies the mean of all replicas' gradients.

    Keras models in a strategy's scope reduce gradients over replicas before any optimizer sees them; there this
    optimizer changes nothing. In `strategy.run` the optimizer inside adds up what the replicas give it, so that the
    sum is applied, with this optimizer and without it.

    Args:
      opt: a Keras optimizer.
      name: of this one.
    """

    def __init__(self, opt: Any, name: str = "CrossReplicaOptimizer") -> None:
        super().__init__(opt, name)

    def _apply(self, gradients: list[tf.Tensor], variables: list[Any]) -> None:
        means = [collectives.cross_replica_mean(grad) for grad in gradients] if collectives.tracing() else gradients
        super()._apply(means, variables)


class MapGradientOptimizer(IpuOptimizer):
    """Replaces every gradient by a function of it and the variable's value.

    Args:
      opt: a Keras optimizer.
      gradient_mapping_function: (gradient, value of the variable) -> gradient.
      name: of this one.
    """

    def __init__(
        self,
        opt: Any,
        gradient_mapping_function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
        name: str = "MapGradientOptimizer",
    ) -> None:
        super().__init__(opt, name)
        self._mapping = gradient_mapping_function

    def _apply(self, gradients: list[tf.Tensor], variables: list[Any]) -> None:
        pairs = zip(gradients, variables, strict=True)
        super()._apply([self._mapping(grad, tf.convert_to_tensor(var)) for grad, var in pairs], variables)

    def get_config(self) -> dict[str, Any]:
        """What is needed to make it again."""
        return {**super().get_config(), "gradient_mapping_function": self._mapping}
