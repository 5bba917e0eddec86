"""The rules of `set_pipeline_stage_assignment`."""

from collections.abc import Sequence
from typing import Any

from openipu.tensorflow.keras.stages.create import LAYER_TYPES, NESTED_TYPES, from_stages, stages_of
from openipu.tensorflow.keras.stages.graph import Call, Graph, Kind


def checked(graph: Graph, given: Any) -> list[Any]:
    """The assignment as objects, or the reason why it is refused."""
    if not isinstance(given, list):
        raise ValueError("`pipeline_stage_assignment` needs to be a list.")
    if graph.kind is Kind.SEQUENTIAL:
        return _sequential(graph, given)
    _check_items(graph, given)
    check_order(graph, stages_of(given))
    return list(given)


def check_order(graph: Graph, stages: Sequence[int | None]) -> None:
    """Refuse a layer that uses the result of a later stage."""
    from openipu.tensorflow.keras.stages.flatten import flatten

    produced: dict[Any, int] = {}
    for leaf in flatten(graph, stages, split=True).leaves:
        if any(produced.get(key, 0) > leaf.stage for key in leaf.reads):
            raise ValueError(
                f"Layer {leaf.name} in pipeline stage {leaf.stage} has a dependency from a pipeline stage which has "
                "not yet been executed. Layers can only use outputs from current or previous pipeline stages."
            )
        produced.update(dict.fromkeys(leaf.writes, leaf.stage))


def _check_items(graph: Graph, given: Sequence[Any]) -> None:
    _check_length(graph, given)
    for position, (call, item) in enumerate(zip(graph.calls, given, strict=True)):
        _check_type(graph, call, item)
        layer = item.nested_model if item.is_nested_model else item.layer
        if layer is not call.layer or (graph.kind is not Kind.SEQUENTIAL and item.node_index != call.node_index):
            raise ValueError(
                "The order of `pipeline_stage_assignment` does not match the post-order generated from the graph "
                f"(at index {position} it has {_named(layer, getattr(item, 'node_index', None))}, the graph has "
                f"{_named(call.layer, call.node_index)}). Change the stages of the list that "
                "`get_pipeline_stage_assignment` returns."
            )
        if call.nested is not None:
            _check_items(call.nested, item.pipeline_stage_assignments)
        else:
            _check_stage(item.pipeline_stage, call)


def _check_length(graph: Graph, given: Sequence[Any]) -> None:
    if len(given) != len(graph.calls):
        raise ValueError(
            f"The length of the provided `pipeline_stage_assignment` ({len(given)}) does not match the number of "
            f"layers in the graph ({len(graph.calls)}). Each layer needs to be assigned a pipeline stage (excluding "
            "input layers)."
        )


def _check_type(graph: Graph, call: Call, item: Any) -> None:
    expected = (LAYER_TYPES if call.nested is None else NESTED_TYPES)[graph.kind]
    if not isinstance(item, expected):
        what = "layer" if call.nested is None else "nested model"
        raise ValueError(
            f"The pipeline stage assignment for {what} {call.layer.name} in {graph.model.name} must be an instance of "
            f"`{expected.__name__}`. Instead the assignment was of type {type(item).__name__}."
        )


def _check_stage(stage: Any, call: Call) -> None:
    if stage is None:
        raise ValueError(
            f"Layer {call.layer.name} with node_index {call.node_index} has not been assigned a pipeline stage in "
            "`pipeline_stage_assignment`."
        )
    _check_number(stage, call.layer.name)


def _check_number(stage: Any, name: str) -> None:
    if isinstance(stage, bool) or not isinstance(stage, int) or stage < 0:
        raise ValueError(f"The pipeline stage of layer {name} must be an integer, counted from 0. Received: {stage!r}.")


def _sequential(graph: Graph, given: Sequence[Any]) -> list[Any]:
    _check_length(graph, given)
    items = [_from_integer(call, item) for call, item in zip(graph.calls, given, strict=True)]
    if any(call.nested is not None for call in graph.calls):
        _check_items(graph, items)
        previous = 0
        for call, stage in zip(graph.leaves(), stages_of(items), strict=True):
            if stage is not None and stage < previous:
                raise ValueError(
                    f"Layer {call.layer.name} in pipeline stage {stage} has a dependency from a pipeline stage which "
                    "has not yet been executed. Layers can only use outputs from current or previous pipeline stages."
                )
            previous = stage or 0
        return items
    for index, (call, item) in enumerate(zip(graph.calls, items, strict=True)):
        _check_type(graph, call, item)
        if item.layer is not call.layer:
            raise ValueError(
                f"The provided assignment at index {index} is for layer {item.layer.name}, however the layer of the "
                f"model at this index is {call.layer.name}."
            )
        if item.pipeline_stage is None:
            raise ValueError(f"Layer {call.layer.name} has not been assigned a pipeline stage.")
        _check_number(item.pipeline_stage, call.layer.name)
    _check_steps(items)
    return items


def _check_steps(items: Sequence[Any]) -> None:
    previous = None
    for item in items:
        stage = item.pipeline_stage
        if previous is None and stage != 0:
            raise ValueError(
                "The first layer in a pipelined sequential model needs to be assigned to the 0th pipeline stage, "
                f"however it was assigned to {stage}."
            )
        if previous is not None and stage not in (previous.pipeline_stage, previous.pipeline_stage + 1):
            raise ValueError(
                f"Layer {item.layer.name} has been assigned to pipeline stage {stage}, however the previous layer "
                f"{previous.layer.name} in the sequential model was assigned to pipeline stage "
                f"{previous.pipeline_stage}. A layer can only be in the same stage as the previous layer or in the "
                "next one."
            )
        previous = item


def _from_integer(call: Call, item: Any) -> Any:
    """A plain number is the stage of the layer, or of all layers of a nested model."""
    if isinstance(item, bool) or not isinstance(item, int):
        return item
    if call.nested is None:
        return LAYER_TYPES[Kind.SEQUENTIAL](call.layer, item)
    stages = [item] * sum(1 for _ in call.nested.leaves())
    return NESTED_TYPES[Kind.SEQUENTIAL](call.layer, from_stages(call.nested, stages))


def _named(layer: Any, node_index: int | None) -> str:
    return layer.name if node_index is None else f"{layer.name} with node index {node_index}"
