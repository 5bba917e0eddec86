"""`poptorch.Options`, its groups and the execution strategies."""

from openipu.torch.options.anchors import Anchor
from openipu.torch.options.base import OptionsDict
from openipu.torch.options.groups import _DistributedOptions, _JitOptions, _PrecisionOptions, _TrainingOptions
from openipu.torch.options.locations import TensorLocationSettings, _TensorLocationOptions
from openipu.torch.options.options import Options
from openipu.torch.options.popart import _PopartOptions, check_popart
from openipu.torch.options.resolution import resolve, use_running_mean, uses_ipu_model, validate
from openipu.torch.options.stages import BlockId, Phase, Placement, Stage
from openipu.torch.options.strategies import (
    ParallelPhasedExecution,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    _IExecutionStrategy,
    _IPhasedExecution,
)

__all__ = [
    "Anchor",
    "BlockId",
    "Options",
    "OptionsDict",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "Placement",
    "SerialPhasedExecution",
    "ShardedExecution",
    "Stage",
    "TensorLocationSettings",
    "_DistributedOptions",
    "_IExecutionStrategy",
    "_IPhasedExecution",
    "_JitOptions",
    "_PopartOptions",
    "_PrecisionOptions",
    "_TensorLocationOptions",
    "_TrainingOptions",
    "check_popart",
    "resolve",
    "use_running_mean",
    "uses_ipu_model",
    "validate",
]
