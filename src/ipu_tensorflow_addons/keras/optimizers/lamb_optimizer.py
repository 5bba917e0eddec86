"""The names of `lamb_optimizer`."""

from openipu.tensorflow.addons.optimizers.lamb_optimizer import LAMBIpuOptimizer

__all__ = ["LAMBIpuOptimizer"]
