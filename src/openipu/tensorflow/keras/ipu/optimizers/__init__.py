"""Keras optimizers that wrap another one, as `keras.ipu.optimizers`."""

from openipu.tensorflow.keras.ipu.optimizers.adam import ALSOptimizerAdam
from openipu.tensorflow.keras.ipu.optimizers.als_optimizer import ALSGradientAccumulationOptimizer, ALSOptimizer
from openipu.tensorflow.keras.ipu.optimizers.gradient_accumulation_optimizer import GradientAccumulationOptimizer
from openipu.tensorflow.keras.ipu.optimizers.gradient_descent import ALSOptimizerSGD
from openipu.tensorflow.keras.ipu.optimizers.ipu_optimizer import (
    CrossReplicaOptimizer,
    IpuOptimizer,
    MapGradientOptimizer,
)
from openipu.tensorflow.keras.ipu.optimizers.rmsprop import ALSOptimizerRMSProp

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
