"""A pipelined model as a row of functions, one for each stage, that hand tensors on from one to the next.

The engine cuts the captured step instead; this is the independent way to run what the stages say.
"""

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

import attrs

from openipu.tensorflow.keras.stages.create import stages_for
from openipu.tensorflow.keras.stages.flatten import Flat, Key, Leaf, flatten
from openipu.tensorflow.keras.stages.graph import Graph, Kind
from openipu.tensorflow.keras.stages.queries import stage_count
from openipu.tensorflow.keras.stages.state import state_of
from openipu.tensorflow.keras.stages.tracing import graph_of
from openipu.tensorflow.keras.versions import keras2, version_of
from tests.tensorflow.keras.stages import keras2_parts, keras3_parts


def parts_of(model: Any) -> Any:
    """The module that knows how the Keras of this model runs a part of it."""
    return keras2_parts if version_of(model) is keras2 else keras3_parts


@attrs.frozen(eq=False)
class Stage:
    """One stage: a function of the tensors that cross into it.

    Attributes:
      index: of the stage.
      model: the whole model.
      leaves: the calls it makes, in order.
      takes, gives: the tensors that cross into it and out of it.
      takes_masks, gives_masks: those of them whose masks cross as well, after all tensors.
      specs: shape and dtype of what it takes, masks left out; None for a dimension that is not known.
      layers: the layers it calls, each once.
      regularised: those of them whose weight regularisation is added here (each layer's in its first stage).
    """

    index: int
    model: Any
    leaves: tuple[Leaf, ...]
    takes: tuple[Key, ...]
    gives: tuple[Key, ...]
    takes_masks: tuple[Key, ...]
    gives_masks: tuple[Key, ...]
    specs: tuple[tuple[tuple[int | None, ...], str], ...]
    layers: tuple[Any, ...]
    regularised: tuple[Any, ...]

    @property
    def variables(self) -> list[Any]:
        """The variables of its layers: weights, statistics, seeds."""
        version, parts = version_of(self.model), parts_of(self.model)
        found = [v for layer in self.layers for v in version.variables(layer)]
        # A variable of the model itself is an argument of the operation that uses it.
        calls = [leaf.call for leaf in self.leaves if leaf.call is not None]
        found += [c for call in calls for c in parts.constants(call.node) if isinstance(c, parts.Variable)]
        return list({id(v): v for v in found}.values())

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """The tensors that cross out of the stage."""
        return self.run(values)[0]

    def run(self, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Run the stage's layers.

        Args:
          values: one for each of `takes`, then one for each of `takes_masks`.

        Returns:
          The values of `gives` and `gives_masks`, and the losses that layers of this stage add.
        """
        version, parts = version_of(self.model), parts_of(self.model)
        env = dict(zip(self.takes, values, strict=False))
        for key, mask in zip(self.takes_masks, values[len(self.takes) :], strict=True):
            parts.set_mask(env[key], mask)
        for layer in self.layers:
            parts.clear_losses(layer)
        _run(version, self.model, self.leaves, env)
        losses = [loss for layer in self.layers for loss in parts.own_losses(layer)]
        losses += [loss() for layer in self.regularised for loss in parts.regularisers(layer)]
        return [env[key] for key in self.gives] + [parts.mask(env[key]) for key in self.gives_masks], losses


@attrs.frozen(eq=False)
class StagedModel:
    """A model cut into its stages.

    Attributes:
      model: the model.
      graph: its graph.
      stages: in order; the first takes what `enter` gives, the last gives what `leave` takes.
    """

    model: Any
    graph: Graph
    stages: tuple[Stage, ...]

    def enter(self, x: Any) -> list[Any]:
        """The model's inputs, in the user's structure, as the first stage takes them."""
        return parts_of(self.model).standardise(self.model, x)

    def leave(self, values: Sequence[Any]) -> Any:
        """What the last stage gives, in the structure in which the model returns it."""
        version, parts = version_of(self.model), parts_of(self.model)
        if self.graph.kind is not Kind.SUBCLASS:
            return parts.pack_outputs(version.graph_model(self.model), values)
        given = iter(values)
        return version.map_structure(lambda v: next(given) if version.is_symbolic(v) else v, self.graph.structure)

    def __call__(self, x: Any) -> Any:
        """All stages, one after the other: what the model itself computes."""
        values = self.enter(x)
        for stage in self.stages:
            values = stage(values)
        return self.leave(values)


def stage_functions(model: Any, training: bool | None = None) -> StagedModel:
    """The stages of a pipelined model as functions.

    Args:
      model: a pipelined model that is built.
      training: what the model would be called with.
    """
    count = stage_count(model)
    graph = graph_of(model, training)
    flat = flatten(graph, stages_for(graph, state_of(model).assignment), training=training)
    masked = _masked(model, flat)
    crossings = [_crossing(flat, stage) for stage in range(count + 1)]
    version = version_of(model)
    seen: set[int] = set()
    stages = []
    for index, (takes, gives) in enumerate(itertools.pairwise(crossings)):
        leaves = tuple(leaf for leaf in flat.leaves if leaf.stage == index)
        layers = {id(leaf.call.layer): leaf.call.layer for leaf in leaves if leaf.call is not None}
        regularised = tuple(layer for key, layer in layers.items() if key not in seen)
        seen |= set(layers)
        stages.append(
            Stage(
                index=index,
                model=model,
                leaves=leaves,
                takes=takes,
                gives=gives,
                takes_masks=tuple(key for key in takes if key in masked) if index else (),
                gives_masks=tuple(key for key in gives if key in masked) if index < count - 1 else (),
                specs=tuple(version.shape_and_dtype(flat.tensors[key]) for key in takes),
                layers=tuple(layers.values()),
                regularised=regularised,
            )
        )
    return StagedModel(model, graph, tuple(stages))


def stage_variables(model: Any) -> list[list[Any]]:
    """The variables of each stage; those of a layer that is called in several stages are in all of them."""
    return [stage.variables for stage in stage_functions(model).stages]


def _crossing(flat: Flat, stage: int) -> tuple[Key, ...]:
    """The tensors that exist before a stage and are needed in it or after it."""
    if stage == 0:
        return flat.inputs
    last = max(leaf.stage for leaf in flat.leaves)
    if stage > last:
        return flat.outputs
    made = set(flat.inputs) | {key for leaf in flat.leaves if leaf.stage < stage for key in leaf.writes}
    needed = [key for leaf in flat.leaves if leaf.stage >= stage for key in leaf.reads] + list(flat.outputs)
    return tuple(dict.fromkeys(key for key in needed if key in made))


def _run(version: Any, model: Any, leaves: Sequence[Leaf], env: dict[Key, Any]) -> None:
    with version.calling(model) as set_training:
        for _, group in itertools.groupby(leaves, key=lambda leaf: leaf.path):
            group = list(group)
            with contextlib.ExitStack() as scopes:
                for around in group[0].models:
                    scopes.enter_context(version.scope(around))
                for leaf in group:
                    set_training(leaf.training)
                    env.update(zip(leaf.writes, _results(version, parts_of(model), leaf, env), strict=True))


def _results(version: Any, parts: Any, leaf: Leaf, env: dict[Key, Any]) -> list[Any]:
    values = [env[key] for key in leaf.reads]
    if leaf.call is None:
        return [parts.cast(values[0], leaf.dtype)]
    named = {id(t): value for t, value in zip(leaf.call.inputs, values, strict=True)}
    return version.run(leaf.call.node, named, leaf.training, leaf.forced)


def _masked(model: Any, flat: Flat) -> set[Key]:
    """The tensors that have a mask, which is an attribute of the tensor and would be lost between stages."""
    version, parts = version_of(model), parts_of(model)
    if all(parts.mask(tensor) is None for tensor in flat.tensors.values()):
        return set()
    # What a layer does with a mask it gets inside a nested model shows only when it is run.
    found: set[Key] = set()

    def probe(*values: Any) -> Any:
        env = dict(zip(flat.inputs, values, strict=True))
        _run(version, model, flat.leaves, env)
        found.update(key for key, value in env.items() if parts.mask(value) is not None)
        return values[0]

    version.infer(probe, *[flat.tensors[key] for key in flat.inputs])
    return found
