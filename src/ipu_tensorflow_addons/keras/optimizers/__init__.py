"""The optimizers of the addons."""

from openipu.tensorflow.addons.optimizers.adam_optimizer import AdamIpuOptimizer
from openipu.tensorflow.addons.optimizers.ipu_optimizer_base import IpuOptimizerBase
from openipu.tensorflow.addons.optimizers.lamb_optimizer import LAMBIpuOptimizer
from openipu.tensorflow.addons.optimizers.sgd_optimizer import SGDIpuOptimizer

__all__ = ["AdamIpuOptimizer", "IpuOptimizerBase", "LAMBIpuOptimizer", "SGDIpuOptimizer"]
