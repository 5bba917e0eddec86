"""What a real IPU would need for a captured program: memory, cycles, time. Predicted, without hardware."""

from openipu.model.captured import Traced, trace
from openipu.model.constants import LAUNCH_LOW, Constant
from openipu.model.cost import Cost, cost
from openipu.model.estimate import (
    Category,
    Contributor,
    Estimate,
    IpuMemory,
    LivePoint,
    Operation,
    OperationKind,
    Pass,
    Shares,
    Stage,
    Suggestion,
)
from openipu.model.fitting.advice import suggestions
from openipu.model.options import Options, Partials, Recompute
from openipu.model.predict import durations_of, estimate
from openipu.model.system import stage_copy

__all__ = [
    "LAUNCH_LOW",
    "Category",
    "Constant",
    "Contributor",
    "Cost",
    "Estimate",
    "IpuMemory",
    "LivePoint",
    "Operation",
    "OperationKind",
    "Options",
    "Partials",
    "Pass",
    "Recompute",
    "Shares",
    "Stage",
    "Suggestion",
    "Traced",
    "cost",
    "durations_of",
    "estimate",
    "stage_copy",
    "suggestions",
    "trace",
]
