"""Pipeline stages of Keras models: which layers are in which."""

from openipu.tensorflow.keras.stages.auto import Split, split
from openipu.tensorflow.keras.stages.locations import stage_of_scope
from openipu.tensorflow.keras.stages.mixins import FunctionalStages, ModelStages, SequentialStages
from openipu.tensorflow.keras.stages.queries import check_devices, check_pipelinable, is_pipelined, prepare, stage_count
from openipu.tensorflow.keras.stages.saving import NAMES, config_of, restore
from openipu.tensorflow.keras.stages.scope import PipelineStage
from openipu.tensorflow.keras.stages.state import StageState

__all__ = [
    "NAMES",
    "FunctionalStages",
    "ModelStages",
    "PipelineStage",
    "SequentialStages",
    "Split",
    "StageState",
    "check_devices",
    "check_pipelinable",
    "config_of",
    "is_pipelined",
    "prepare",
    "restore",
    "split",
    "stage_count",
    "stage_of_scope",
]
