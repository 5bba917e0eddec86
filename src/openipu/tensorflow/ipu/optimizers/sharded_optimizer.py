"""Gradients on the shards of their forward operations."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.ipu.optimizers.ipu_optimizer import IpuOptimizer

__all__ = ["ShardedOptimizer"]


class ShardedOptimizer(IpuOptimizer):
    """Keeps gradients next to the operations they belong to; gradients know their shard here in any case.

    Args:
      optimizer: a `tf.compat.v1.train` optimizer.
    """

    def __init__(self, optimizer: tf.compat.v1.train.Optimizer) -> None:
        super().__init__(optimizer, "ShardedOptimizer")

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> list[tuple[Any, tf.Variable]]:
        """Those of the optimizer inside, placed with their operations."""
        return self._opt.compute_gradients(loss, var_list=var_list, **{**kwargs, "colocate_gradients_with_ops": True})
