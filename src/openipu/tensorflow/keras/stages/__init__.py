"""Pipeline stages of Keras models: who is in which, and what each of them computes."""

from openipu.tensorflow.keras.stages.auto import Split, split
from openipu.tensorflow.keras.stages.functions import Stage, StagedModel, stage_functions, stage_variables
from openipu.tensorflow.keras.stages.locations import stage_of_scope
from openipu.tensorflow.keras.stages.mixins import FunctionalStages, ModelStages, SequentialStages
from openipu.tensorflow.keras.stages.queries import check_pipelinable, is_pipelined, prepare, stage_count
from openipu.tensorflow.keras.stages.saving import NAMES, config_of, restore, restore_on_load
from openipu.tensorflow.keras.stages.scope import PipelineStage
from openipu.tensorflow.keras.stages.state import StageState

__all__ = [
    "NAMES",
    "FunctionalStages",
    "ModelStages",
    "PipelineStage",
    "SequentialStages",
    "Split",
    "Stage",
    "StageState",
    "StagedModel",
    "check_pipelinable",
    "config_of",
    "is_pipelined",
    "prepare",
    "restore",
    "restore_on_load",
    "split",
    "stage_count",
    "stage_functions",
    "stage_of_scope",
    "stage_variables",
]
