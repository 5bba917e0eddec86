"""The modules users import as `keras.ipu`."""

import importlib
from types import ModuleType
from typing import Any

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
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "ModelLayerPipelineStageAssignment",
    "NestedModelPipelineStageAssignment",
    "PipelineStage",
    "ReplicatedMetricReductionMethod",
    "SequentialLayerPipelineStageAssignment",
    "SequentialNestedModelPipelineStageAssignment",
]

_SUBMODULES = ("extensions", "layers", "optimizers")


def __getattr__(name: str) -> ModuleType:
    # They define classes of Keras, which must be loaded only once it is known which Keras the user has.
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[Any]:
    return [*__all__, *_SUBMODULES]
