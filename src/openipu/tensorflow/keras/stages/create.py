"""Makes assignment objects for a graph, from stages or from the stage scopes its layers were made and called in."""

from collections.abc import Iterator, Sequence
from typing import Any

from openipu.tensorflow.keras.stages import assignment as objects
from openipu.tensorflow.keras.stages import scope
from openipu.tensorflow.keras.stages.graph import Call, Graph, Kind

LAYER_TYPES: dict[Kind, type] = {
    Kind.FUNCTIONAL: objects.FunctionalLayerPipelineStageAssignment,
    Kind.SUBCLASS: objects.ModelLayerPipelineStageAssignment,
    Kind.SEQUENTIAL: objects.SequentialLayerPipelineStageAssignment,
}
NESTED_TYPES: dict[Kind, type] = {
    Kind.FUNCTIONAL: objects.FunctionalNestedModelPipelineStageAssignment,
    Kind.SUBCLASS: objects.NestedModelPipelineStageAssignment,
    Kind.SEQUENTIAL: objects.SequentialNestedModelPipelineStageAssignment,
}


def from_stages(graph: Graph, stages: Sequence[int | None] | None = None) -> list[Any]:
    """Assignment objects with the stages of the leaves of a graph; without stages when none are given."""
    given = iter(stages) if stages is not None else None
    return _make(graph, given)


def stages_of(assignments: Sequence[Any]) -> list[int | None]:
    """The stages of the leaves, those of nested models in their place."""
    found: list[int | None] = []
    for item in assignments:
        if item.is_nested_model:
            found += stages_of(item.pipeline_stage_assignments)
        else:
            found.append(item.pipeline_stage)
    return found


def stages_for(graph: Graph, assignments: Sequence[Any]) -> list[int | None]:
    """The stages of the leaves of a graph; a nested model that was assigned as one layer has one stage throughout.

    That is what it was when the model around it was not built yet.
    """
    found: list[int | None] = []
    for call, item in zip(graph.calls, assignments, strict=True):
        if call.nested is None:
            found.append(item.pipeline_stage)
        elif item.is_nested_model:
            found += stages_for(call.nested, item.pipeline_stage_assignments)
        else:
            found += [item.pipeline_stage] * sum(1 for _ in call.nested.leaves())
    return found


def from_scopes(graph: Graph) -> list[Any]:
    """Assignment objects with the stages of the scopes; empty when no scope was used."""
    stages = list(_scoped(graph, None, None))
    if all(stage is None for stage in stages):
        return []
    for call, stage in zip(graph.leaves(), stages, strict=True):
        if stage is None:
            raise ValueError(
                "All layers of a pipelined model must have an associated pipeline stage. However, "
                f"{call.layer.name} has not been assigned to one. Construct or call it inside "
                "`keras.ipu.PipelineStage`, or assign all layers with `set_pipeline_stage_assignment`."
            )
    return from_stages(graph, stages)


def _make(graph: Graph, stages: Iterator[int | None] | None) -> list[Any]:
    made = []
    for call in graph.calls:
        index = () if graph.kind is Kind.SEQUENTIAL else (call.node_index,)
        if call.nested is not None:
            made.append(NESTED_TYPES[graph.kind](call.layer, *index, _make(call.nested, stages)))
        else:
            stage = None if stages is None else next(stages)
            made.append(LAYER_TYPES[graph.kind](call.layer, *index, stage))
    return made


def _scoped(graph: Graph, forced: int | None, default: int | None) -> Iterator[int | None]:
    """The stages of the leaves: where the outermost call was made, else where the layer was constructed."""
    for call in graph.calls:
        called = forced if forced is not None else _call_tag(call)
        constructed = scope.tag(call.layer)
        constructed = constructed if constructed is not None else default
        if call.nested is not None:
            yield from _scoped(call.nested, called, constructed)
        else:
            yield called if called is not None else constructed


def _call_tag(call: Call) -> int | None:
    return None if call.node is None else scope.tag(call.node)
