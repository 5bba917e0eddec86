"""Splits a model into stages that take about equally long, by the estimated cost of its layers."""

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import jax
import tensorflow as tf

from openipu import jax_boundary
from openipu.hardware import MK2, Target
from openipu.model import Cost, cost
from openipu.program.balance import balance
from openipu.tensorflow.capture.function import capture
from openipu.tensorflow.keras.stages.flatten import Flat, Leaf, flatten
from openipu.tensorflow.keras.stages.graph import Graph
from openipu.tensorflow.keras.versions import KerasVersion, version_of


@attrs.frozen
class Split:
    """A model split into stages.

    Attributes:
      row: the layers, in post-order.
      costs: of the layers.
      assignment: the stage of each layer.
      seconds: what each stage takes for one micro-batch, transfers included, on one IPU of the target.
      balance: mean over maximum of that: 1 when all stages take equally long.
    """

    row: "Row"
    costs: tuple[Cost, ...]
    assignment: tuple[int, ...]
    seconds: tuple[float, ...]
    balance: float

    def lines(self) -> Iterator[str]:
        """The result in words."""
        total = sum(self.seconds) or 1.0
        for stage, seconds in enumerate(self.seconds):
            names = [leaf.name for leaf, s in zip(self.row.leaves, self.assignment, strict=True) if s == stage]
            shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
            flops = sum(c.flops for c, s in zip(self.costs, self.assignment, strict=True) if s == stage)
            yield (
                f"stage {stage}: {shown} ({len(names)} layers), {flops / 1e6:,.1f} MFLOP, "
                f"{seconds * 1e6:,.1f} us ({seconds / total:.0%})"
            )
        yield f"expected balance (mean over longest stage): {self.balance:.0%}"


@attrs.frozen(eq=False)
class Row:
    """The layers of a model in the order in which they run, as far as stages can be cut between them.

    Attributes:
      graph, flat: of the model.
      leaves: the layers; a nested model that cannot be cut is one of them.
      groups: their positions, those in one group that must stay in one stage.
    """

    graph: Graph
    flat: Flat
    leaves: tuple[Leaf, ...]
    groups: tuple[tuple[int, ...], ...]

    def crossing(self, position: int, batch_size: int) -> int:
        """Bytes of the tensors that are made before a position and used at or after it."""
        version = version_of(self.graph.model)
        made = set(self.flat.inputs) | {key for leaf in self.leaves[:position] for key in leaf.writes}
        needed = {key for leaf in self.leaves[position:] for key in leaf.reads} | set(self.flat.outputs)
        specs = [static_spec(version, self.flat.tensors[key], batch_size, "") for key in made & needed]
        return sum(map(bytes_of, specs))

    def of_all_layers(self, assignment: Sequence[int]) -> list[int]:
        """The stages of all layers of the model's graph, given those of the row."""
        stages: list[int] = []
        for leaf, stage in zip(self.leaves, assignment, strict=True):
            nested = None if leaf.call is None else leaf.call.nested
            stages += [stage] * (1 if nested is None else sum(1 for _ in nested.leaves()))
        return stages


def row_of(graph: Graph) -> Row:
    """The layers of a model that is built."""
    flat = flatten(graph, [0] * sum(1 for _ in graph.leaves()), split=True)
    if not flat.tensors:
        raise RuntimeError(
            f"The layers of model {graph.model.name} have no shapes yet. Build it first: call `model.build` with the "
            "shape of its inputs."
        )
    leaves = tuple(leaf for leaf in flat.leaves if leaf.call is not None)
    return Row(graph, flat, leaves, tuple(tuple(group) for group in _inseparable(graph, leaves)))


def split(graph: Graph, stages: int, batch_size: int = 1, target: Target = MK2) -> Split:
    """Split a model into stages.

    Args:
      graph: of a model that is built.
      stages: number of stages.
      batch_size: micro-batch for which costs are estimated.
      target: the IPU for which times are estimated.
    """
    row = row_of(graph)
    costs = layer_costs(graph, row.flat, row.leaves, batch_size, target)
    check_stages(row, stages)
    seconds = [sum(costs[i].seconds for i in group) for group in row.groups]
    edges = [row.crossing(group[-1] + 1, batch_size) / target.pair_bandwidth for group in row.groups[:-1]]
    found = balance(seconds, stages, edges)
    assignment = [s for s, group in zip(found.assignment, row.groups, strict=True) for _ in group]
    return Split(row, tuple(costs), tuple(assignment), found.stage_costs, found.balance)


def check_stages(row: Row, stages: int) -> None:
    """Refuse a number of stages that a model cannot be cut into."""
    if not isinstance(stages, int) or not 1 <= stages <= len(row.groups):
        raise ValueError(
            f"stages must be between 1 and the number of layers that can be separated, {len(row.groups)} in model "
            f"{row.graph.model.name}. Received: stages={stages}. Calls of a shared layer stay in one stage."
        )


def layer_costs(graph: Graph, flat: Flat, leaves: Sequence[Leaf], batch_size: int, target: Target) -> list[Cost]:
    """The cost of a forward pass of each layer, counted in what it compiles to."""
    version = version_of(graph.model)
    specs: list[tf.TensorSpec] = []
    places: list[range] = []
    for leaf in leaves:
        places.append(range(len(specs), len(specs) + len(leaf.reads)))
        specs += [static_spec(version, flat.tensors[key], batch_size, leaf.name) for key in leaf.reads]
    widths: list[int] = []

    # All layers side by side, each with inputs of its own: one compilation, and nothing of one layer in another's.
    def every_layer(*values: tf.Tensor) -> list[tf.Tensor]:
        results: list[tf.Tensor] = []
        with version.calling(graph.model) as set_training:
            set_training(False)
            for leaf, place in zip(leaves, places, strict=True):
                assert leaf.call is not None
                named = {id(t): values[i] for t, i in zip(leaf.call.inputs, place, strict=True)}
                made = version.run(leaf.call.node, named, False, leaf.forced)
                widths.append(len(made))
                results += made
        return results

    captured = capture(every_layer, specs, f"the layers of {graph.model.name}")
    widths = widths[-len(leaves) :]
    used = {id(v): jax.ShapeDtypeStruct(tuple(v.shape), v.dtype.as_numpy_dtype) for v in captured.used}

    def evaluate(values: list[jax.Array], variables: list[jax.Array], key: jax.Array) -> list[jax.Array]:
        return captured(values, dict(zip(used, variables, strict=True)), key)[0]

    inputs = [jax.ShapeDtypeStruct(tuple(s.shape), s.dtype.as_numpy_dtype) for s in specs]
    jaxpr = jax.make_jaxpr(evaluate)(inputs, list(used.values()), jax.random.key(0)).jaxpr
    return [cost(_part(jaxpr, sum(widths[:i]), width), target) for i, width in enumerate(widths)]


def _part(jaxpr: Any, first: int, width: int) -> Any:
    """What of a jaxpr some of its results need."""
    wanted = [first <= i < first + width for i in range(len(jaxpr.outvars))]
    return jax_boundary.dce_jaxpr(jaxpr, wanted)[0]


def _inseparable(graph: Graph, leaves: Sequence[Leaf]) -> list[list[int]]:
    """Layers in groups: all calls of a layer with weights, and what lies between them, stay together.

    Weights cannot be on two IPUs.
    """
    version = version_of(graph.model)
    last: dict[int, int] = {}
    for i, leaf in enumerate(leaves):
        assert leaf.call is not None
        for variable in version.variables(leaf.call.layer):
            last[id(variable)] = i
    groups: list[list[int]] = []
    end = -1
    for i, leaf in enumerate(leaves):
        assert leaf.call is not None
        if i > end:
            groups.append([])
        groups[-1].append(i)
        end = max([end, i, *(last[id(v)] for v in version.variables(leaf.call.layer))])
    return groups


def bytes_of(spec: tf.TensorSpec) -> int:
    """The size of a tensor of known shape."""
    return int(spec.shape.num_elements() or 0) * spec.dtype.size


def static_spec(version: KerasVersion, tensor: Any, batch_size: int, name: str) -> tf.TensorSpec:
    """A symbolic tensor with a batch of this size.

    Args:
      version: the Keras it belongs to.
      tensor: the tensor.
      batch_size: what stands for an unknown first dimension.
      name: of the layer that takes it, for the refusal.
    """
    shape, dtype = version.shape_and_dtype(tensor)
    known = tuple(d for d in (batch_size if d is None and i == 0 else d for i, d in enumerate(shape)) if d is not None)
    if len(known) < len(shape):
        raise ValueError(
            f"The input of layer {name} has shape {shape}: all dimensions but the batch must be known to estimate "
            "its cost. Give the sizes when making the model's inputs."
        )
    return tf.TensorSpec(known, dtype)
