"""A model with its nested models as one row of calls, each with its stage, what it reads and what it makes."""

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.keras.stages.graph import Call, Graph, Kind
from openipu.tensorflow.keras.versions import KerasVersion, version_of

# A tensor in a model that is called at a certain place: a nested model may be called several times.
Key = tuple[tuple[int, ...], int]


@attrs.frozen(eq=False)
class Leaf:
    """One call to run.

    Attributes:
      name: of the layer.
      stage: its pipeline stage.
      path: where the model that makes the call is itself called.
      models: that model and those around it, outermost first.
      reads, writes: the tensors it takes and makes.
      call: the call; None when the value only changes its dtype on its way into a nested model.
      dtype: the dtype it then gets.
      training: whether the model around it is training.
      forced: whether that is given to the layer even if the call said something else, as Functional models do.
    """

    name: str
    stage: int
    path: tuple[int, ...]
    models: tuple[Any, ...]
    reads: tuple[Key, ...]
    writes: tuple[Key, ...]
    call: Call | None = None
    dtype: str | None = None
    training: bool | None = None
    forced: bool = True


@attrs.frozen(eq=False)
class Flat:
    """The whole model as one row of calls.

    Attributes:
      leaves: in an order in which they can run.
      inputs, outputs: the model's own tensors.
      tensors: the symbolic tensor of every key that is made, and of the inputs.
    """

    leaves: tuple[Leaf, ...]
    inputs: tuple[Key, ...]
    outputs: tuple[Key, ...]
    tensors: dict[Key, Any]


def flatten(graph: Graph, stages: Sequence[int | None], split: bool = False, training: bool | None = None) -> Flat:
    """One row of calls.

    Args:
      graph: of the model.
      stages: of the leaves of the graph.
      split: whether nested models are split into their layers even when all of them are in one stage.
      training: whether the model is training.
    """
    walker = _Walker(version_of(graph.model), split, iter(stages))
    inputs = tuple(((), id(t)) for t in graph.inputs)
    walker.tensors.update(zip(inputs, graph.inputs, strict=True))
    walker.walk(graph, (), (graph.model,), training)
    outputs = tuple(walker.resolve(((), id(t))) for t in graph.outputs)
    return Flat(tuple(walker.leaves), inputs, outputs, walker.tensors)


class _Walker:
    def __init__(self, version: KerasVersion, split: bool, stages: Iterator[int | None]) -> None:
        self.version, self.split, self.stages = version, split, stages
        self.leaves: list[Leaf] = []
        self.tensors: dict[Key, Any] = {}
        self.aliases: dict[Key, Key] = {}
        self.produced: dict[Key, int] = {}

    def resolve(self, key: Key) -> Key:
        """The tensor that is really meant: nested models only give new names to what they take and return."""
        while key in self.aliases:
            key = self.aliases[key]
        return key

    def walk(self, graph: Graph, path: tuple[int, ...], models: tuple[Any, ...], training: bool | None) -> None:
        forced = graph.kind is not Kind.SUBCLASS
        for index, call in enumerate(graph.calls):
            inner = [_number(next(self.stages)) for _ in (call.nested.leaves() if call.nested else (call,))]
            if call.nested is not None and (self.split or len(set(inner)) > 1):
                binding = _bind(self.version, call, call.nested)
                if binding is not None:
                    self._enter(call, call.nested, index, path, models, self._training(call, training, forced),
                                inner, binding)  # fmt: skip
                    continue
                if len(set(inner)) > 1:
                    raise UnsupportedError(
                        f"The layers of the nested model {call.layer.name} cannot be in several pipeline stages, "
                        "because it is called with more than its inputs or with inputs of another rank. Put all its "
                        "layers into one stage or call it with its inputs only."
                    )
            reads = tuple(self.resolve((path, id(t))) for t in call.inputs)
            writes = tuple((path, id(t)) for t in call.outputs)
            self.tensors.update(zip(writes, call.outputs, strict=True))
            # With no layer in it, a nested model can be anywhere its inputs are.
            stage = inner[0] if inner else max((self.produced.get(k, 0) for k in reads), default=0)
            self._add(Leaf(call.layer.name, stage, path, models, reads, writes, call, None, training, forced))

    def _enter(self, call: Call, nested: Graph, index: int, path: tuple[int, ...], models: tuple[Any, ...],
               training: bool | None, stages: list[int], binding: list[tuple[Any, Any]]) -> None:  # fmt: skip
        below = (*path, index)
        for own, given in binding:
            key, source = (below, id(own)), self.resolve((path, id(given)))
            dtype = self.version.shape_and_dtype(own)[1]
            if dtype == self.version.shape_and_dtype(given)[1]:
                self.aliases[key] = source
                continue
            self.tensors[key] = own
            stage = self.produced.get(source, 0)
            self._add(Leaf(f"{call.layer.name} input", stage, path, models, (source,), (key,), dtype=dtype))
        outer, self.stages = self.stages, iter(stages)
        self.walk(nested, below, (*models, call.layer), training)
        self.stages = outer
        for own, made in zip(call.outputs, nested.outputs, strict=True):
            self.aliases[path, id(own)] = self.resolve((below, id(made)))

    def _training(self, call: Call, training: bool | None, forced: bool) -> bool | None:
        if forced and training is not None:
            return training
        given = self.version.arguments(call.node)[1].get("training")
        return training if given is None else given

    def _add(self, leaf: Leaf) -> None:
        self.leaves.append(leaf)
        self.produced.update(dict.fromkeys(leaf.writes, leaf.stage))


def _bind(version: KerasVersion, call: Call, nested: Graph) -> list[tuple[Any, Any]] | None:
    """Which tensor of the caller each input of a nested model is; None when that is not a plain matter."""
    args, kwargs = version.arguments(call.node)
    symbolic = [t for t in version.flatten((args, kwargs)) if version.is_symbolic(t)]
    if nested.kind is not Kind.SUBCLASS:
        given = args[0] if args else kwargs.get("inputs")
        flat = version.argument_order(nested.model, given)
        others = {id(t) for t in version.implied_masks(call.node)}
        if {id(t) for t in flat} != {id(t) for t in symbolic} - others:
            return None
    else:
        flat = symbolic
    if len(flat) != len(nested.inputs) or len(call.outputs) != len(nested.outputs):
        return None
    pairs = list(zip(nested.inputs, flat, strict=True))
    ranks = [[len(version.shape_and_dtype(t)[0]) for t in pair] for pair in pairs]
    return pairs if all(own == given for own, given in ranks) else None


def _number(stage: int | None) -> int:
    if stage is None:
        raise AssertionError("a layer without a stage must have been refused before")
    return stage
