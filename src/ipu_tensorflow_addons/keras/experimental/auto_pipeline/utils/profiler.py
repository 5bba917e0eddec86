"""The names of `profiler`."""

from openipu.tensorflow.addons.auto_pipeline.profiler import (
    ReportHelper,
    create_strategy,
    profile_layer_from_assignment,
)

__all__ = [
    "ReportHelper",
    "create_strategy",
    "profile_layer_from_assignment",
]
