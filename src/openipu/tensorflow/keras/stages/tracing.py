"""The graphs of subclassed models, found by running their `call` on symbolic inputs."""

import logging
from typing import Any

from openipu.errors import UnsupportedError
from openipu.tensorflow.keras.stages.graph import Graph, Kind, call_of, flavour_of, graph_with_nodes, kind_of
from openipu.tensorflow.keras.stages.state import state_of

log = logging.getLogger("openipu.keras")

_TRACES = "_ipu_traces"


def traced(model: Any, training: bool | None = None) -> Graph:
    """The graph of a subclassed, extended model, for the inputs it was built for."""
    state = state_of(model)
    if state.inputs is None:
        raise AssertionError(f"{model.name} is traced before it is built")
    if state.graph is None:
        with model._ipu.strategy.scope():
            state.graph = _trace(model, (state.inputs,), {}, None)
    if training is None:
        return state.graph
    with model._ipu.strategy.scope():
        other = _trace(model, (state.inputs,), {}, training, again=True)
    _check_same(state.graph, other, training)
    return other


def nested(flavour: Any, node: Any, model: Any, training: bool | None, forced: bool) -> Graph | None:
    """The graph of a model that is called by a node; None when it cannot be told and the call is one layer."""
    given = flavour.arguments(node)[1].get("training")
    if given is not None and not (forced and training is not None):
        training = given
    kind = kind_of(model)
    if kind is not Kind.SUBCLASS:
        holder = flavour.graph_model(model)
        return None if holder is None else graph_with_nodes(model, kind, training)
    # A second trace of the same call would make new nodes, and the assignments name nodes.
    traces = node.__dict__.setdefault(_TRACES, {})
    if training not in traces:
        args, kwargs = flavour.arguments(node)
        kwargs = {name: value for name, value in kwargs.items() if name != "training"}
        try:
            traces[training] = _trace(model, args, kwargs, training, again=bool(traces))
        except UnsupportedError as error:
            log.info("The model %s is one layer for pipelining: %s", model.name, error)
            traces[training] = None
        first = next(iter(traces.values()))
        if first is not None and traces[training] is not None:
            _check_same(first, traces[training], training)
    return traces[training]


def _trace(model: Any, args: tuple, kwargs: dict[str, Any], training: bool | None, again: bool = False) -> Graph:
    """Trace a model's `call`; what is traced `again` leaves no nodes, because assignments name those of the first."""
    flavour = flavour_of(model)
    made: list[Any] = []

    def replace(value: Any) -> Any:
        if not flavour.is_symbolic(value):
            return value
        made.append(flavour.symbolic(model, *flavour.shape_and_dtype(value)))
        return made[-1]

    args, kwargs = flavour.map_structure(replace, args), flavour.map_structure(replace, kwargs)
    if training is not None and flavour.takes_training(model) and "training" not in kwargs:
        kwargs = {**kwargs, "training": training}
    try:
        nodes, structure = flavour.trace(model, args, kwargs, made, training)
    except (RuntimeError, UnsupportedError):
        raise
    except Exception as error:
        raise UnsupportedError(
            f"The `call` of the model {model.name} cannot be traced on symbolic inputs, which pipelining needs to "
            f"find its layers: {error}\nUse Keras layers and `keras.ops` in `call`, or make the model with the "
            "Functional API."
        ) from error
    graph = Graph(
        model,
        Kind.SUBCLASS,
        tuple(call_of(flavour, node, training, forced=False) for node in nodes),
        tuple(made),
        tuple(t for t in flavour.flatten(structure) if flavour.is_symbolic(t)),
        structure,
    )
    if again:
        flavour.forget(nodes)
    return graph


def _check_same(first: Graph, second: Graph, training: bool | None) -> None:
    """Stages are assigned once, so the calls must be the same ones whether training or not."""
    if _signature(first) != _signature(second):
        raise UnsupportedError(
            f"The `call` of the model {second.model.name} calls other layers with training={training} than otherwise. "
            "A pipelined model must call the same layers in the same order: let the layers themselves look at "
            "`training`."
        )


def _signature(graph: Graph) -> list[Any]:
    known = {id(layer) for layer in flavour_of(graph.model).all_layers(graph.model)}
    # Operations and layers made on the fly are new in every trace; what they are is all there is to compare.
    return [id(call.layer) if id(call.layer) in known else type(call.layer) for call in graph.leaves()]
