"""The graph of a model, whichever way it was made: the calls of its layers, in the order in which they run."""

import enum
import sys
from collections.abc import Iterator
from typing import Any

import attrs


class Kind(enum.Enum):
    """How a model was made."""

    FUNCTIONAL = "functional"
    SEQUENTIAL = "sequential"
    SUBCLASS = "subclass"


@attrs.frozen(eq=False)
class Call:
    """One call of a layer (or of a bare operation) in a model.

    Attributes:
      layer: what is called.
      node_index: which of its calls; 0 for a Sequential model that is not built.
      node: Keras' own record of the call; None in a Sequential model that is not built.
      inputs, outputs: the symbolic tensors it takes and makes.
      nested: the graph of the model that is called, None when it is a layer.
    """

    layer: Any
    node_index: int
    node: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    nested: "Graph | None" = None


@attrs.frozen(eq=False)
class Graph:
    """The calls of a model.

    Attributes:
      model: the model.
      kind: how it was made.
      calls: in execution post-order: by distance from the outputs, inputs left out.
      inputs, outputs: its symbolic tensors, flat.
      structure: the structure its outputs are returned in, of symbolic tensors; None where Keras keeps it.
    """

    model: Any
    kind: Kind
    calls: tuple[Call, ...]
    inputs: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] = ()
    structure: Any = None

    def leaves(self) -> Iterator[Call]:
        """The calls of layers, those of nested models in their place."""
        for call in self.calls:
            if call.nested is None:
                yield call
            else:
                yield from call.nested.leaves()


def flavour_of(model: Any) -> Any:
    """The module that knows the Keras this model or layer belongs to."""
    legacy = sys.modules.get("tf_keras")
    if legacy is not None and isinstance(model, legacy.layers.Layer):
        from openipu.tensorflow.keras.stages import keras2

        return keras2
    from openipu.tensorflow.keras.stages import keras3

    return keras3


def kind_of(model: Any) -> Kind:
    """How a model was made."""
    flavour = flavour_of(model)
    if isinstance(model, flavour.Sequential):
        return Kind.SEQUENTIAL
    return Kind.FUNCTIONAL if isinstance(model, flavour.Functional) else Kind.SUBCLASS


def graph_of(model: Any, training: bool | None = None) -> Graph:
    """The graph of an extended model, nested models included.

    Args:
      model: a Functional or Sequential model, or a subclassed one that has been built.
      training: what the `call` of subclassed models is traced with; it may do different things.
    """
    from openipu.tensorflow.keras.stages import tracing

    kind = kind_of(model)
    return tracing.traced(model, training) if kind is Kind.SUBCLASS else graph_with_nodes(model, kind, training)


def graph_with_nodes(model: Any, kind: Kind, training: bool | None) -> Graph:
    """The graph that Keras keeps for Functional models and for Sequential models once they are built."""
    flavour = flavour_of(model)
    holder = flavour.graph_model(model)
    if holder is None:
        return Graph(model, kind, tuple(_unbuilt_call(layer) for layer in flavour.sequential_layers(model)))
    return Graph(
        model,
        kind,
        tuple(call_of(flavour, node, training, forced=True) for node in flavour.nodes(holder)),
        tuple(flavour.inputs(holder)),
        tuple(flavour.outputs(holder)),
    )


def call_of(flavour: Any, node: Any, training: bool | None, forced: bool) -> Call:
    """Keras' record of a call as ours, with the graph of the model it calls.

    Args:
      flavour: the Keras it belongs to.
      node: the record.
      training: what the model around it is called with.
      forced: whether that holds even if the call said something else, as in Functional models.
    """
    from openipu.tensorflow.keras.stages import tracing

    layer = flavour.operation(node)
    return Call(
        layer,
        next(i for i, n in enumerate(layer._inbound_nodes) if n is node),
        node,
        tuple(flavour.node_inputs(node)),
        tuple(flavour.node_outputs(node)),
        tracing.nested(flavour, node, layer, training, forced) if isinstance(layer, flavour.Model) else None,
    )


def _unbuilt_call(layer: Any) -> Call:
    flavour = flavour_of(layer)
    nested = None
    if isinstance(layer, flavour.Model) and kind_of(layer) is not Kind.SUBCLASS:
        nested = graph_with_nodes(layer, kind_of(layer), None)
    return Call(layer, 0, None, (), (), nested)
