"""Whether a model is pipelined, into how many stages, and whether it can run that way."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.keras.stages import create, reading, validate
from openipu.tensorflow.keras.stages.graph import Kind, kind_of
from openipu.tensorflow.keras.stages.state import state_of
from openipu.tensorflow.keras.stages.tracing import graph_of
from openipu.tensorflow.keras.versions import version_of

_STEPS = {"train": (), "test": ("test_step",), "predict": ("predict_step",)}


def is_pipelined(model: Any) -> bool:
    """Whether the model has pipeline stages."""
    if kind_of(model) is Kind.SUBCLASS:
        reading.read_subclass(model)
    return bool(state_of(model).assignment)


def stage_count(model: Any) -> int:
    """How many stages a pipelined model has; refuses stages that no layer is in."""
    state = state_of(model)
    if not state.valid:
        raise RuntimeError(
            f"The pipeline stage assignments of model {model.name} are no longer valid, because its layers have "
            "changed. Call `set_pipeline_stage_assignment` again."
        )
    used = {stage for stage in create.stages_of(state.assignment) if stage is not None}
    highest = max(used)
    missing = sorted(set(range(highest)) - used)
    if missing:
        raise RuntimeError(
            "All stages in a pipeline must have at lease one layer assigned to them. The highest stage with an "
            f"assignment is stage {highest}, however the preceeding stages {missing} had no assignments."
        )
    return highest + 1


def check_devices(model: Any, mapping: Sequence[int]) -> None:
    """Refuse a layer whose calls are in stages on several IPUs: its variables live on one.

    Args:
      model: a pipelined model that is built.
      mapping: the IPU of every stage.
    """
    graph = graph_of(model)
    homes: dict[int, int] = {}
    for call, stage in zip(graph.leaves(), create.stages_for(graph, state_of(model).assignment), strict=True):
        if stage is None or not getattr(call.layer, "weights", ()):
            continue
        home = homes.setdefault(id(call.layer), stage)
        if mapping[home] != mapping[stage]:
            message = (
                f"Layer {call.layer.name} is used in pipeline stage {home} on IPU {mapping[home]} and in stage {stage} "
                f"on IPU {mapping[stage]}, but variables cannot be shared across IPUs. Put its calls into one stage, "
                "or the two stages on one IPU with the `device_mapping` of `set_pipelining_options`."
            )
            raise tf.errors.UnimplementedError(None, None, message)


def check_pipelinable(model: Any, mode: str) -> None:
    """Refuse what a user's class may not override.

    Args:
      model: an extended model, pipelined or not.
      mode: "train", "test" or "predict".
    """
    version, kind = version_of(model), kind_of(model)
    if kind is Kind.SUBCLASS and model.__original_class__.call is version.Model.call:
        raise NotImplementedError(
            f"The function `call` for the model {model.name} has not been implemented. Implement it in your model "
            "definition: it says what the model computes."
        )
    if not is_pipelined(model):
        return
    for method in _STEPS[mode]:
        if _overridden(model, version.Model, method):
            raise RuntimeError(
                f"The function `{method}` for the model {model.name} has been overridden. This is not supported for "
                "pipelined Keras models."
            )
    if kind is not Kind.SUBCLASS:
        base, name = (
            (version.Sequential, "Sequential") if kind is Kind.SEQUENTIAL else (version.Functional, "Functional")
        )
        if _overridden(model, base, "call"):
            raise RuntimeError(
                f"The function `call` for the model {model.name} has been overridden. This is not supported for "
                f"pipelined Keras {name} models."
            )
    if kind is not Kind.SEQUENTIAL:
        # Stages from scopes were never given to `set_pipeline_stage_assignment`, which would have refused them.
        graph = graph_of(model)
        validate.check_order(graph, create.stages_for(graph, state_of(model).assignment))


def prepare(model: Any, x: Any) -> None:
    """Make ready for data of this structure, shapes and dtypes: trace a subclassed model, check what is assigned.

    Args:
      model: an extended model.
      x: the model's inputs as `tf.TensorSpec`s, in the user's structure.
    """
    if kind_of(model) is Kind.SUBCLASS:
        reading.fit_to_data(model, x)


def _overridden(model: Any, base: type, method: str) -> bool:
    return getattr(model.__original_class__, method) is not getattr(base, method)
