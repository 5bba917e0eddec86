"""When stage scopes are read: as a Functional model is made, as a subclassed model is built."""

from typing import Any

from openipu.tensorflow.keras.stages import create, scope
from openipu.tensorflow.keras.stages.graph import Kind
from openipu.tensorflow.keras.stages.state import state_of
from openipu.tensorflow.keras.stages.tracing import graph_with_nodes, retraced, traced
from openipu.tensorflow.keras.versions import KerasVersion, version_of


def read_functional(model: Any) -> None:
    """Give a Functional model that is being made the stages its layers were made and called in."""
    version = version_of(model)
    if not scope.opened() or version.belongs_to_sequential(model):
        return
    nodes = version.nodes(model)
    inside = [*nodes, *(version.operation(n) for n in nodes), *version.all_layers(model)]
    inside += [n for layer in version.all_layers(model) for n in version.inbound_nodes(layer)]
    if any(scope.tag(thing) is not None for thing in inside):
        state_of(model).assignment = create.from_scopes(graph_with_nodes(model, Kind.FUNCTIONAL, None))


def is_built(model: Any) -> bool:
    """Whether it is known what inputs a subclassed model takes."""
    state, version = state_of(model), version_of(model)
    if state.inputs is None:
        # A model that is loaded is built behind our back; Keras then notes the shape.
        shape = version.built_shape(model)
        state.inputs = None if shape is None else version.symbolic_like(model, shape)
    return state.inputs is not None


def read_subclass(model: Any) -> None:
    """Give a subclassed model that is built the stages it was saved with, or its layers were made and called in."""
    state = state_of(model)
    if state.read or state.assignment or not is_built(model):
        return
    if state.saved is not None:
        state.read = True
        state.assignment = create.from_stages(traced(model), state.saved)
    elif _has_scopes(model):
        state.read = True
        state.assignment = create.from_scopes(traced(model))


def fit_to_data(model: Any, x: Any) -> None:
    """Trace a subclassed model for the data it is given; refuse data that its stages were not assigned for.

    A model that was built with the shape of one example, `build((28, 28))`, is traced again and keeps its stages.
    """
    version, state = version_of(model), state_of(model)
    given = version.symbolic_like(model, x)
    if state.graph is None:
        if not state.called:
            state.called = True
            with model._ipu.strategy.scope():
                version.infer(model, given)
        state.inputs = given
        read_subclass(model)
        return
    if _is_of_one_example(version, state.inputs, given):
        stages = create.stages_of(state.assignment)
        if retraced(model, given):
            state.assignment = create.from_stages(traced(model), stages) if stages else []
            return
    for old, new in zip(version.flatten(state.inputs), version.flatten(given), strict=False):
        _check_compatible(model, version.shape_and_dtype(old), version.shape_and_dtype(new))


def _is_of_one_example(version: KerasVersion, built: Any, given: Any) -> bool:
    """Whether a model was built with the shapes of one example, and is given batches of them."""
    pairs = [
        (version.shape_and_dtype(old), version.shape_and_dtype(new))
        for old, new in zip(version.flatten(built), version.flatten(given), strict=False)
    ]
    return all(tuple(old[0]) == tuple(new[0][1:]) and old[1] == new[1] for old, new in pairs)


def _check_compatible(model: Any, old: tuple[tuple, str], new: tuple[tuple, str]) -> None:
    same = len(old[0]) == len(new[0]) and old[1] == new[1]
    if not same or any(a != b and a is not None and b is not None for a, b in zip(old[0][1:], new[0][1:], strict=True)):
        raise RuntimeError(
            f"The pipeline stage assignments for model {model.name} are no longer valid: they were made for inputs of "
            f"shape {old[0]} and dtype {old[1]}, and it is now given inputs of shape {new[0]} and dtype {new[1]}. "
            "Give it inputs like the first ones, or build a new model."
        )


def _has_scopes(model: Any) -> bool:
    if not scope.opened():
        return False
    return scope.opens_stages(model) or any(
        scope.tag(layer) is not None or scope.opens_stages(layer) for layer in version_of(model).all_layers(model)
    )
