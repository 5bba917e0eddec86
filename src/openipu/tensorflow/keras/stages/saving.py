"""Stages in the config of a model: what `get_config` adds, and how a loaded model gets it back."""

from collections.abc import Sequence
from typing import Any

from openipu.tensorflow.keras.stages import create
from openipu.tensorflow.keras.stages.graph import Graph, Kind, kind_of
from openipu.tensorflow.keras.stages.state import state_of
from openipu.tensorflow.keras.stages.tracing import graph_of
from openipu.tensorflow.keras.versions import version_of

NAMES = ("pipeline_stage_assignment", "pipeline_stage_assignment_valid", "graph_network_initialized")


def config_of(model: Any) -> dict[str, Any]:
    """What a model's config says about its stages."""
    state, kind = state_of(model), kind_of(model)
    if kind is Kind.SEQUENTIAL:
        return {
            "pipeline_stage_assignment": _stages(state.assignment),
            "pipeline_stage_assignment_valid": state.valid,
        }
    saved: list[Any] = []
    if state.assignment:
        layers = version_of(model).saved_order(model) if kind is Kind.FUNCTIONAL else list(model.layers)
        saved = _entries(graph_of(model), state.assignment, layers)
    elif state.saved is not None:
        saved = [[None, None, stage] for stage in state.saved]
    config = {"pipeline_stage_assignment": saved}
    return config if kind is Kind.FUNCTIONAL else {**config, "graph_network_initialized": state.graph is not None}


def restore(model: Any, config: dict[str, Any]) -> None:
    """Give a loaded model the stages that its config names; a subclassed model gets them when it is built.

    Args:
      model: an extended model.
      config: the entries of its config that `config_of` made; others are ignored.
    """
    saved = config.get("pipeline_stage_assignment")
    if not saved:
        return
    state, kind = state_of(model), kind_of(model)
    # Node indices change when a model is saved with only some of its layers' calls; the order of calls does not.
    stages = _leaves(saved if kind is Kind.SEQUENTIAL else [entry[2] for entry in saved])
    if kind is Kind.SUBCLASS:
        state.saved = stages
        return
    graph = graph_of(model)
    expected = sum(1 for _ in graph.leaves())
    if expected != len(stages):
        raise ValueError(
            f"The config of model {model.name} has pipeline stages for {len(stages)} layers, but the model has "
            f"{expected}. Load the model from the config it was saved with, or outside of the strategy's scope."
        )
    state.assignment = create.from_stages(graph, stages)
    state.valid = config.get("pipeline_stage_assignment_valid", True)


def _entries(graph: Graph, assignments: Sequence[Any], layers: Sequence[Any]) -> list[Any]:
    """(layer index, node index, stage) of each call; a list of stages stands for a nested model."""
    number = {id(layer): i for i, layer in enumerate(layers)}
    return [
        [
            number.get(id(call.layer)),
            call.node_index,
            _stages(item.pipeline_stage_assignments) if item.is_nested_model else item.pipeline_stage,
        ]
        for call, item in zip(graph.calls, assignments, strict=True)
    ]


def _stages(assignments: Sequence[Any]) -> list[Any]:
    return [_stages(a.pipeline_stage_assignments) if a.is_nested_model else a.pipeline_stage for a in assignments]


def _leaves(saved: Sequence[Any]) -> list[int]:
    return [stage for item in saved for stage in (_leaves(item) if isinstance(item, (list, tuple)) else [item])]
