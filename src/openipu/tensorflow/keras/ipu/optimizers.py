"""Keras optimizers that wrap another one: accumulation, mapping and averaging of gradients."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from openipu.tensorflow import collectives
from openipu.tensorflow.accumulation import Accumulators, DtypeRule
from openipu.tensorflow.ipu.gradient_accumulation import GradientAccumulationReductionMethod
from openipu.tensorflow.ipu.refused import Refused, refused_class

__all__ = [
    "ALSGradientAccumulationOptimizer",
    "ALSOptimizer",
    "ALSOptimizerAdam",
    "ALSOptimizerRMSProp",
    "ALSOptimizerSGD",
    "CrossReplicaOptimizer",
    "GradientAccumulationOptimizer",
    "IpuOptimizer",
    "MapGradientOptimizer",
]

Variables = Sequence[Any]

_LOSS_SCALING = Refused(
    "automatic loss scaling by histograms is not implemented",
    "Use keras.mixed_precision.LossScaleOptimizer, which scales the loss by its own rule.",
)


class IpuOptimizer(keras.optimizers.Optimizer):
    """Passes everything on to the optimizer inside.

    Args:
      opt: a Keras optimizer.
      name: of this one.
    """

    def __init__(self, opt: keras.optimizers.Optimizer, name: str | None = None) -> None:
        if not isinstance(opt, keras.optimizers.Optimizer):
            raise ValueError(
                "opt must be a Keras optimizer. Use ipu.optimizers to wrap those of tf.compat.v1.train. "
                f"Received: opt of type {type(opt).__name__}."
            )
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

    def finalize_variable_values(self, var_list: Variables) -> None:
        """As the optimizer inside does."""
        self.inner_optimizer.finalize_variable_values(var_list)

    def get_config(self) -> dict[str, Any]:
        """What is needed to make it again."""
        return {"name": self.name, "opt": keras.saving.serialize_keras_object(self.inner_optimizer)}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Any:
        """Makes it again."""
        inner = keras.saving.deserialize_keras_object(config["opt"], custom_objects=custom_objects)
        return cls(**{**config, "opt": inner})


class CrossReplicaOptimizer(IpuOptimizer):
    """Applies the mean of all replicas' gradients.

    Keras models in a strategy's scope reduce gradients over replicas before any optimizer sees them; there this
    optimizer changes nothing. In `strategy.run` the optimizer inside adds up what the replicas give it, so that the
    sum is applied, with this optimizer and without it.

    Args:
      opt: a Keras optimizer.
      name: of this one.
    """

    def __init__(self, opt: keras.optimizers.Optimizer, name: str = "CrossReplicaOptimizer") -> None:
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
        opt: keras.optimizers.Optimizer,
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


class GradientAccumulationOptimizer(IpuOptimizer):
    """Applies the gradients of `num_mini_batches` calls as one.

    In `fit`, `set_gradient_accumulation_options` of the model is the better way: it accumulates on the device.

    Args:
      opt: a Keras optimizer; with `num_mini_batches=1` the result is this optimizer itself.
      num_mini_batches: calls that make one update.
      offload_weight_update_variables, replicated_optimizer_state_sharding: accepted for compatibility.
      dtype: of the accumulators: None for the variable's own, a dtype, or a function of the variable.
      reduction_method: how the gradients become one.
      name: of this one.
    """

    def __new__(cls, opt: Any, num_mini_batches: int, *args: Any, **kwargs: Any) -> Any:
        """The optimizer itself where there is nothing to accumulate."""
        if not isinstance(num_mini_batches, int) or num_mini_batches < 1:
            raise ValueError(f"num_mini_batches must be >= 1. Received: num_mini_batches={num_mini_batches!r}.")
        return opt if num_mini_batches == 1 else super().__new__(cls)

    def __init__(
        self,
        opt: keras.optimizers.Optimizer,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: DtypeRule = None,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
        name: str = "GradientAccumulationOptimizer",
    ) -> None:
        super().__init__(opt, name)
        self._accumulators = Accumulators(num_mini_batches, reduction_method, dtype)
        self._accumulator_dtype = dtype

    def build(self, variables: Variables) -> None:
        """Makes the variables of both optimizers, and the accumulators."""
        super().build(variables)
        self._accumulators.build([var.value for var in variables])

    def _apply(self, gradients: list[tf.Tensor], variables: list[Any]) -> None:
        self._accumulators.apply(
            gradients, [var.value for var in variables], lambda totals: self.inner_optimizer.apply(totals, variables)
        )

    def get_config(self) -> dict[str, Any]:
        """What is needed to make it again."""
        return {
            **super().get_config(),
            "num_mini_batches": self._accumulators.count,
            "dtype": self._accumulator_dtype,
            "reduction_method": self._accumulators.method.name,
        }


def _refused(name: str) -> type:
    return refused_class(__name__, f"keras.ipu.optimizers.{name}", _LOSS_SCALING)


ALSOptimizer = _refused("ALSOptimizer")
ALSOptimizerAdam = _refused("ALSOptimizerAdam")
ALSOptimizerRMSProp = _refused("ALSOptimizerRMSProp")
ALSOptimizerSGD = _refused("ALSOptimizerSGD")
ALSGradientAccumulationOptimizer = _refused("ALSGradientAccumulationOptimizer")
