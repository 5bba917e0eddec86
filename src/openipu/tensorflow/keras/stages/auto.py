"""Splits a model into stages that take about equally long, by the estimated cost of its layers."""

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import jax
import numpy as np
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
      names: of the layers, in post-order.
      costs: of the layers.
      assignment: the stage of each layer.
      seconds: what each stage takes for one micro-batch, transfers included, on one IPU of the target.
      balance: mean over maximum of that: 1 when all stages take equally long.
    """

    names: tuple[str, ...]
    costs: tuple[Cost, ...]
    assignment: tuple[int, ...]
    seconds: tuple[float, ...]
    balance: float

    def lines(self) -> Iterator[str]:
        """The result in words."""
        total = sum(self.seconds) or 1.0
        for stage, seconds in enumerate(self.seconds):
            names = [n for n, s in zip(self.names, self.assignment, strict=True) if s == stage]
            shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
            flops = sum(c.flops for c, s in zip(self.costs, self.assignment, strict=True) if s == stage)
            yield (
                f"stage {stage}: {shown} ({len(names)} layers), {flops / 1e6:,.1f} MFLOP, "
                f"{seconds * 1e6:,.1f} us ({seconds / total:.0%})"
            )
        yield f"expected balance (mean over longest stage): {self.balance:.0%}"


def split(graph: Graph, stages: int, batch_size: int = 1, target: Target = MK2) -> Split:
    """Split a model into stages.

    Args:
      graph: of a model that is built.
      stages: number of stages.
      batch_size: micro-batch for which costs are estimated.
      target: the IPU for which times are estimated.
    """
    flat = flatten(graph, [0] * sum(1 for _ in graph.leaves()), split=True)
    if not flat.tensors:
        raise RuntimeError(
            f"The layers of model {graph.model.name} have no shapes yet. Build it first: call `model.build` with the "
            "shape of its inputs."
        )
    leaves = [leaf for leaf in flat.leaves if leaf.call is not None]
    costs = layer_costs(graph, flat, leaves, batch_size, target)
    groups = _inseparable(graph, leaves)
    if not isinstance(stages, int) or not 1 <= stages <= len(groups):
        raise ValueError(
            f"stages must be between 1 and the number of layers that can be separated, {len(groups)} in model "
            f"{graph.model.name}. Received: stages={stages}. Calls of a shared layer stay in one stage."
        )
    seconds = [sum(costs[i].seconds for i in group) for group in groups]
    edges = [_crossing(flat, leaves, group[-1] + 1, batch_size, graph) / target.pair_bandwidth for group in groups[:-1]]
    found = balance(seconds, stages, edges)
    assignment = [s for s, group in zip(found.assignment, groups, strict=True) for _ in group]
    names = tuple(leaf.name for leaf in leaves)
    return Split(names, tuple(costs), tuple(assignment), found.stage_costs, found.balance)


def layer_costs(graph: Graph, flat: Flat, leaves: Sequence[Leaf], batch_size: int, target: Target) -> list[Cost]:
    """The cost of a forward pass of each layer, counted in what it compiles to."""
    version = version_of(graph.model)
    specs: list[tf.TensorSpec] = []
    places: list[range] = []
    for leaf in leaves:
        shapes = [_static(version, flat.tensors[key], batch_size, leaf.name) for key in leaf.reads]
        places.append(range(len(specs), len(specs) + len(shapes)))
        specs += [tf.TensorSpec(shape, dtype) for shape, dtype in shapes]
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


def _crossing(flat: Flat, leaves: Sequence[Leaf], position: int, batch_size: int, graph: Graph) -> float:
    """Bytes of the tensors that are made before a position and used after it."""
    version = version_of(graph.model)
    made = set(flat.inputs) | {key for leaf in leaves[:position] for key in leaf.writes}
    needed = {key for leaf in leaves[position:] for key in leaf.reads} | set(flat.outputs)
    sizes = [_static(version, flat.tensors[key], batch_size, "") for key in made & needed]
    return float(sum(np.prod(shape) * tf.as_dtype(dtype).size for shape, dtype in sizes))


def _static(version: KerasVersion, tensor: Any, batch_size: int, name: str) -> tuple[tuple[int, ...], str]:
    shape, dtype = version.shape_and_dtype(tensor)
    known = tuple(d for d in (batch_size if d is None and i == 0 else d for i, d in enumerate(shape)) if d is not None)
    if len(known) < len(shape):
        raise ValueError(
            f"The input of layer {name} has shape {shape}: all dimensions but the batch must be known to estimate "
            "its cost. Give the sizes when making the model's inputs."
        )
    return known, dtype
