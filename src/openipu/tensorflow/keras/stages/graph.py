"""The graph of a model, whichever way it was made: the calls of its layers, in the order in which they run."""

import enum
from collections.abc import Iterator
from typing import Any

import attrs

from openipu.tensorflow.keras.versions import version_of


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


def kind_of(model: Any) -> Kind:
    """How a model was made."""
    version = version_of(model)
    if isinstance(model, version.Sequential):
        return Kind.SEQUENTIAL
    return Kind.FUNCTIONAL if isinstance(model, version.Functional) else Kind.SUBCLASS
