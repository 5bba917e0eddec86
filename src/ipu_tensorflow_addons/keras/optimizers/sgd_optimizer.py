"""The names of `sgd_optimizer`."""

from openipu.tensorflow.addons.optimizers.sgd_optimizer import SGDIpuOptimizer

__all__ = ["SGDIpuOptimizer"]
