"""The namespace `ipu.keras` of old programs: names that moved, and models that are refused."""

from typing import Any, NoReturn

from openipu.tensorflow.ipu.lazy import lazy

_KERAS = "openipu.tensorflow.keras.ipu"
_STAGES = (
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "ModelLayerPipelineStageAssignment",
    "NestedModelPipelineStageAssignment",
    "PipelineStage",
    "ReplicatedMetricReductionMethod",
    "SequentialLayerPipelineStageAssignment",
    "SequentialNestedModelPipelineStageAssignment",
)

__getattr__, __dir__ = lazy(
    __name__,
    {
        **{name: f"{_KERAS}:{name}" for name in _STAGES},
        "layers": "layers",
        "losses": "losses",
        "optimizers": f"{_KERAS}.optimizers",
    },
)


def _deleted(name: str, replacement: str) -> type:
    def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"ipu.keras.{name} has been deleted. Use {replacement} inside an IPUStrategy scope instead.")

    doc = f"Refused: replaced by {replacement}."
    return type(name, (), {"__new__": refuse, "__doc__": doc, "__module__": __name__})


Model = _deleted("Model", "tf.keras.Model")
Sequential = _deleted("Sequential", "tf.keras.Sequential")
PipelineModel = _deleted("PipelineModel", "tf.keras.Model and set_pipelining_options")
PipelineSequential = _deleted("PipelineSequential", "tf.keras.Sequential and set_pipelining_options")
