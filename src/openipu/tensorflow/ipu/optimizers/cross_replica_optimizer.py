"""Gradients averaged over replicas before they are applied."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.ipu.optimizers.ipu_optimizer import GradsAndVars, IpuOptimizer
from openipu.tensorflow.ops import collectives

__all__ = ["CrossReplicaOptimizer", "apply_cross_replica_op", "apply_cross_replica_op_single"]


class CrossReplicaOptimizer(IpuOptimizer):
    """Applies the mean of all replicas' gradients.

    The optimizers of `tf.compat.v1.train` themselves add up what the replicas give them when they run under a
    strategy, as in `strategy.run`; there the sum is applied, with this optimizer and without it.

    Args:
      opt: a `tf.compat.v1.train` optimizer.
      name: of this one.
    """

    def __init__(self, opt: tf.compat.v1.train.Optimizer, name: str = "CrossReplicaOptimizer") -> None:
        super().__init__(opt, name)

    def _apply(self, pairs: list[tuple[Any, tf.Variable]], global_step: Any, name: str | None) -> Any:
        return super()._apply(apply_cross_replica_op(pairs), global_step, name)


def apply_cross_replica_op(grads_and_vars: GradsAndVars) -> list[tuple[Any, tf.Variable]]:
    """The mean over replicas of every gradient there is."""
    return [apply_cross_replica_op_single(grad, var) for grad, var in grads_and_vars]


def apply_cross_replica_op_single(grad: Any, var: tf.Variable) -> tuple[Any, tf.Variable]:
    """The mean over replicas of a gradient, with its variable."""
    return (None if grad is None else collectives.cross_replica_mean(tf.convert_to_tensor(grad)), var)
