"""The names of `ipu_optimizer_base`."""

from openipu.tensorflow.addons.optimizers.ipu_optimizer_base import IpuOptimizerBase

__all__ = ["IpuOptimizerBase"]
