"""The classes whose methods Keras models get inside an IPU strategy's scope, as `keras.ipu.extensions`."""

from openipu.tensorflow.keras.extension import FunctionalExtension, ModelExtension, SequentialExtension
from openipu.tensorflow.keras.options import ReplicatedMetricReductionMethod
from openipu.tensorflow.keras.stages.assignment import (
    FunctionalLayerPipelineStageAssignment,
    FunctionalNestedModelPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    NestedModelPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
    SequentialNestedModelPipelineStageAssignment,
)
from openipu.tensorflow.keras.stages.scope import PipelineStage

__all__ = [
    "FunctionalExtension",
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "ModelExtension",
    "ModelLayerPipelineStageAssignment",
    "NestedModelPipelineStageAssignment",
    "PipelineStage",
    "ReplicatedMetricReductionMethod",
    "SequentialExtension",
    "SequentialLayerPipelineStageAssignment",
    "SequentialNestedModelPipelineStageAssignment",
]
