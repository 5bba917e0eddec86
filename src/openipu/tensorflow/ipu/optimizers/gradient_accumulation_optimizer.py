"""Gradients of several micro-batches added up before they are applied."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.ipu.gradient_accumulation import GradientAccumulationReductionMethod
from openipu.tensorflow.ipu.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from openipu.tensorflow.ipu.optimizers.ipu_optimizer import IpuOptimizer
from openipu.tensorflow.ops.accumulation import Accumulators, DtypeRule
from openipu.tensorflow.refusals import Refused, refused_function

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer",
    "CrossReplicaGradientAccumulationOptimizerV2",
    "GradientAccumulationOptimizer",
    "GradientAccumulationOptimizerV2",
    "GradientAccumulationReductionMethod",
]


_INSIDE = Refused("it was the inside of this optimizer in TensorFlow 1", "Call minimize or apply_gradients.")


class GradientAccumulationOptimizerV2(IpuOptimizer):
    """Applies the gradients of `num_mini_batches` calls as one, on every replica by itself.

    Args:
      opt: a `tf.compat.v1.train` optimizer.
      num_mini_batches: calls of `apply_gradients` that make one update.
      offload_weight_update_variables, replicated_optimizer_state_sharding: accepted for compatibility.
      dtype: of the accumulators: None for the variable's own, a dtype, or a function of the variable.
      reduction_method: how the gradients become one.
      name: of this one.
    """

    def __init__(
        self,
        opt: tf.compat.v1.train.Optimizer,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: DtypeRule = None,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
        name: str = "GradientAccumulationOptimizerV2",
    ) -> None:
        super().__init__(opt, name)
        if not isinstance(num_mini_batches, int) or num_mini_batches < 1:
            raise ValueError(
                f"num_mini_batches must be a positive number. Received: num_mini_batches={num_mini_batches!r}."
            )
        self._accumulators = Accumulators(num_mini_batches, reduction_method, dtype)

    def _apply(self, pairs: list[tuple[Any, tf.Variable]], global_step: Any, name: str | None) -> Any:
        given = [(grad, var) for grad, var in pairs if grad is not None]
        if not given:
            raise ValueError("No gradients provided for any variable. Check that the loss depends on the variables.")
        variables = [var for _, var in given]

        def update(gradients: list[tf.Tensor]) -> None:
            self._opt.apply_gradients(list(zip(gradients, variables, strict=True)), global_step, name)

        self._accumulators.apply([tf.convert_to_tensor(grad) for grad, _ in given], variables, update)
        return tf.no_op()


for _name in ("create_accumulated_grads", "apply_gradient_accumulation"):
    setattr(GradientAccumulationOptimizerV2, _name, staticmethod(refused_function(f"ipu.optimizers.{_name}", _INSIDE)))


class CrossReplicaGradientAccumulationOptimizerV2(GradientAccumulationOptimizerV2):
    """The same, with the mean over replicas of what was added up."""

    def __init__(
        self,
        opt: tf.compat.v1.train.Optimizer,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: DtypeRule = None,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
        name: str = "CrossReplicaGradientAccumulationOptimizerV2",
    ) -> None:
        super().__init__(CrossReplicaOptimizer(opt), num_mini_batches, offload_weight_update_variables,
                         replicated_optimizer_state_sharding, dtype, reduction_method, name)  # fmt: skip


class GradientAccumulationOptimizer(GradientAccumulationOptimizerV2):
    """The old form: sums, for plain gradient descent and momentum.

    Args:
      opt: a GradientDescentOptimizer or MomentumOptimizer.
      num_mini_batches: calls of `apply_gradients` that make one update.
      verify_usage: accepted for compatibility.
      name: of this one.
    """

    def __init__(
        self,
        opt: tf.compat.v1.train.Optimizer,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str = "GradientAccumulationOptimizer",
    ) -> None:
        _check_kind(opt)
        super().__init__(opt, num_mini_batches, name=name)


class CrossReplicaGradientAccumulationOptimizer(CrossReplicaGradientAccumulationOptimizerV2):
    """The old form: sums, then the mean over replicas, for plain gradient descent and momentum."""

    def __init__(
        self,
        opt: tf.compat.v1.train.Optimizer,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str = "CrossReplicaGradientAccumulationOptimizer",
    ) -> None:
        _check_kind(opt)
        super().__init__(opt, num_mini_batches, name=name)


def _check_kind(opt: Any) -> None:
    inner = opt
    while isinstance(inner, IpuOptimizer):
        inner = inner._opt
    if not isinstance(inner, tf.compat.v1.train.GradientDescentOptimizer | tf.compat.v1.train.MomentumOptimizer):
        raise ValueError(
            "opt must be a GradientDescentOptimizer or MomentumOptimizer. "
            f"Received: {type(inner).__name__}. Use GradientAccumulationOptimizerV2, which takes any optimizer."
        )
