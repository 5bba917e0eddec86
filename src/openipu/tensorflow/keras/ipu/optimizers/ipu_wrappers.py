"""The base of optimizers that wrap another one, under the path of old programs."""

from openipu.tensorflow.keras.ipu.optimizers.ipu_optimizer import IpuOptimizer

__all__ = ["IpuOptimizer"]
