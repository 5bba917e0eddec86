"""The classes whose methods Keras models get inside an IPU strategy's scope, as `keras.ipu.extensions`."""

from openipu.tensorflow.keras.model_methods import FunctionalExtension, ModelExtension, SequentialExtension
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
from openipu.tensorflow.refusals import Refused, refused_class, refused_function

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

_INSIDE = Refused(
    "it was the inside of fit, evaluate and predict",
    "Use the methods of a Keras model made in strategy.scope().",
    functions=("merge_into_batch_dimension",),
    classes=("IPUDataHandler", "InfeedManager", "OutfeedManager", "PollingThread", "PollingThreadPredict"),
)
globals().update({name: refused_class(__name__, f"keras.ipu.extensions.{name}", _INSIDE) for name in _INSIDE.classes})
globals().update({name: refused_function(f"keras.ipu.extensions.{name}", _INSIDE) for name in _INSIDE.functions})
# All models have the methods of this one; the original had a class of its own for that.
KerasExtensionBase = ModelExtension
logged_steps_per_execution_warning = False
