"""Whether a model is pipelined, into how many stages, and whether it can run that way."""

from typing import Any

from openipu.tensorflow.keras.stages import create, reading, validate
from openipu.tensorflow.keras.stages.graph import Kind, flavour_of, graph_of, kind_of
from openipu.tensorflow.keras.stages.state import state_of

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


def check_pipelinable(model: Any, mode: str) -> None:
    """Refuse what a user's class may not override.

    Args:
      model: an extended model, pipelined or not.
      mode: "train", "test" or "predict".
    """
    flavour, kind = flavour_of(model), kind_of(model)
    if kind is Kind.SUBCLASS and model.__original_class__.call is flavour.Model.call:
        raise NotImplementedError(
            f"The function `call` for the model {model.name} has not been implemented. Implement it in your model "
            "definition: it says what the model computes."
        )
    if not is_pipelined(model):
        return
    for method in _STEPS[mode]:
        if _overridden(model, flavour.Model, method):
            raise RuntimeError(
                f"The function `{method}` for the model {model.name} has been overridden. This is not supported for "
                "pipelined Keras models."
            )
    if kind is not Kind.SUBCLASS:
        base, name = (
            (flavour.Sequential, "Sequential") if kind is Kind.SEQUENTIAL else (flavour.Functional, "Functional")
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
