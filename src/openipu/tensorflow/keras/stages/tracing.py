"""The graphs of models: those that Keras keeps, and of subclassed ones by running their `call` on symbolic inputs."""

import logging
from collections.abc import Iterator
from typing import Any

from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.keras.stages.graph import Call, Graph, Kind, kind_of
from openipu.tensorflow.keras.stages.state import state_of
from openipu.tensorflow.keras.versions import KerasVersion, version_of

log = logging.getLogger("openipu.keras")

_TRACES = "_ipu_traces"


def graph_of(model: Any, training: bool | None = None) -> Graph:
    """The graph of an extended model, nested models included.

    Args:
      model: a Functional or Sequential model, or a subclassed one that has been built.
      training: what the `call` of subclassed models is traced with; it may do different things.
    """
    kind = kind_of(model)
    return traced(model, training) if kind is Kind.SUBCLASS else graph_with_nodes(model, kind, training)


def graph_with_nodes(model: Any, kind: Kind, training: bool | None) -> Graph:
    """The graph that Keras keeps for Functional models and for Sequential models once they are built."""
    version = version_of(model)
    holder = version.graph_model(model)
    if holder is None:
        return Graph(model, kind, tuple(_unbuilt_call(layer) for layer in model.layers))
    return Graph(
        model,
        kind,
        tuple(call_of(version, node, training, forced=True) for node in version.nodes(holder)),
        tuple(holder.inputs),
        tuple(holder.outputs),
    )


def call_of(version: KerasVersion, node: Any, training: bool | None, forced: bool) -> Call:
    """Keras' record of a call as ours, with the graph of the model it calls.

    Args:
      version: the Keras it belongs to.
      node: the record.
      training: what the model around it is called with.
      forced: whether that holds even if the call said something else, as in Functional models.
    """
    layer = version.operation(node)
    return Call(
        layer,
        next(i for i, n in enumerate(version.inbound_nodes(layer)) if n is node),
        node,
        tuple(version.node_inputs(node)),
        tuple(version.node_outputs(node)),
        nested(version, node, layer, training, forced) if isinstance(layer, version.Model) else None,
    )


def _unbuilt_call(layer: Any) -> Call:
    version = version_of(layer)
    nested = None
    if isinstance(layer, version.Model) and kind_of(layer) is not Kind.SUBCLASS:
        nested = graph_with_nodes(layer, kind_of(layer), None)
    return Call(layer, 0, None, (), (), nested)


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


def retraced(model: Any, inputs: Any) -> bool:
    """Trace a subclassed model for other inputs in place of the first; False, if it calls other layers then."""
    state, first = state_of(model), traced(model)
    version_of(model).forget(list(_nodes(first)))
    state.inputs, state.graph = inputs, None
    return _signature(traced(model)) == _signature(first)


def _nodes(graph: Graph) -> Iterator[Any]:
    for call in graph.calls:
        if call.nested is not None:
            yield from _nodes(call.nested)
        if call.node is not None:
            yield call.node


def nested(version: KerasVersion, node: Any, model: Any, training: bool | None, forced: bool) -> Graph | None:
    """The graph of a model that is called by a node; None when it cannot be told and the call is one layer."""
    given = version.arguments(node)[1].get("training")
    if given is not None and not (forced and training is not None):
        training = given
    kind = kind_of(model)
    if kind is not Kind.SUBCLASS:
        holder = version.graph_model(model)
        return None if holder is None else graph_with_nodes(model, kind, training)
    # A second trace of the same call would make new nodes, and the assignments name nodes.
    traces = node.__dict__.setdefault(_TRACES, {})
    if training not in traces:
        args, kwargs = version.arguments(node)
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
    version = version_of(model)
    made: list[Any] = []

    def replace(value: Any) -> Any:
        if not version.is_symbolic(value):
            return value
        made.append(version.symbolic(model, *version.shape_and_dtype(value)))
        return made[-1]

    args, kwargs = version.map_structure(replace, args), version.map_structure(replace, kwargs)
    if training is not None and version.takes_training(model) and "training" not in kwargs:
        kwargs = {**kwargs, "training": training}
    try:
        nodes, structure = version.trace(model, args, kwargs, made, training)
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
        tuple(call_of(version, node, training, forced=False) for node in nodes),
        tuple(made),
        tuple(t for t in version.flatten(structure) if version.is_symbolic(t)),
        structure,
    )
    if again:
        version.forget(nodes)
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
    known = {id(layer) for layer in version_of(graph.model).all_layers(graph.model)}
    # Operations and layers made on the fly are new in every trace; what they are is all there is to compare.
    return [id(call.layer) if id(call.layer) in known else type(call.layer) for call in graph.leaves()]
