"""Optimizers that wrap those of `tf.compat.v1.train`."""

from openipu.tensorflow.ipu.gradient_accumulation import GradientAccumulationReductionMethod
from openipu.tensorflow.ipu.optimizers.automatic_loss_scaling_optimizer import AutomaticLossScalingOptimizer
from openipu.tensorflow.ipu.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from openipu.tensorflow.ipu.optimizers.gradient_accumulation_optimizer import (
    CrossReplicaGradientAccumulationOptimizer,
    CrossReplicaGradientAccumulationOptimizerV2,
    GradientAccumulationOptimizer,
    GradientAccumulationOptimizerV2,
)
from openipu.tensorflow.ipu.optimizers.ipu_optimizer import IpuOptimizer
from openipu.tensorflow.ipu.optimizers.map_gradient_optimizer import MapGradientOptimizer
from openipu.tensorflow.ipu.optimizers.sharded_optimizer import ShardedOptimizer

__all__ = [
    "AutomaticLossScalingOptimizer",
    "CrossReplicaGradientAccumulationOptimizer",
    "CrossReplicaGradientAccumulationOptimizerV2",
    "CrossReplicaOptimizer",
    "GradientAccumulationOptimizer",
    "GradientAccumulationOptimizerV2",
    "GradientAccumulationReductionMethod",
    "IpuOptimizer",
    "MapGradientOptimizer",
    "ShardedOptimizer",
]
