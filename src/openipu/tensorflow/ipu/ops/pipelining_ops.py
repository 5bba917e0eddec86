"""Pipelines made by hand, under the path IPU programs know."""

from openipu.tensorflow.ipu.ops.optimizer_function_output import OptimizerFunctionOutput
from openipu.tensorflow.pipelines.options import (
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    recomputation_checkpoint,
)
from openipu.tensorflow.pipelines.pipeline import pipeline

__all__ = [
    "OptimizerFunctionOutput",
    "PipelineSchedule",
    "PipelineStageOptions",
    "RecomputationMode",
    "pipeline",
    "recomputation_checkpoint",
]
