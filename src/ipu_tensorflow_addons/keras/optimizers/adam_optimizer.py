"""The names of `adam_optimizer`."""

from openipu.tensorflow.addons.optimizers.adam_optimizer import AdamIpuOptimizer

__all__ = ["AdamIpuOptimizer"]
