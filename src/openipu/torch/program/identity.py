"""What tells one module's program from another without tracing it: the captured graph and all that is compiled in."""

import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Graph, GraphModule, Node

from openipu.compiler import digest
from openipu.torch.boundary import OpOverload, schema_name
from openipu.torch.capture import graph_text
from openipu.torch.capture.grouping import Grouped
from openipu.torch.capture.module import Captured
from openipu.torch.capture.own_gradients import derivative_of
from openipu.torch.optim.updates import Training, scales

# What these do is a Python function of the user's, which text does not show.
_OPAQUE = ("openipu::custom", "openipu::host_call")


def identity(
    captured: Captured,
    constants: Mapping[str, np.ndarray],
    training: Training | None,
    anchors: Sequence[str],
    groups: Mapping[str, Grouped],
    kept: Collection[str],
    traps: bool,
) -> str | None:
    """A hash of everything `assemble` makes a program of; None if part of it is no data.

    Args:
      captured: one forward pass.
      constants: parameters and buffers that are compiled in.
      anchors: names of tensors that become outputs, with the operations they are of.
      training, groups, kept, traps: as `assemble` takes them.
    """
    graphs = [*_graphs(captured.graph)]
    if any(_opaque(node) for graph in graphs for node in graph.nodes):
        return None
    parts: list[str | bytes] = ["torch", torch.__version__]
    parts += [line for graph in graphs for line in graph_text.lines(graph)]
    parts += [str(captured.signature), repr(captured.trainable)]
    for name, value in [*captured.constants.items(), *sorted(constants.items())]:
        parts += [f"{name} {value.dtype} {value.shape}", value.tobytes()]
    if training is not None:
        rule = training.optimizer
        parts += [rule.kind, repr(sorted(rule.structure.items())), repr(rule.nesterov), repr(sorted(rule.constant))]
        parts += [repr(rule.automatic), repr(scales(rule)), training.loss.name]
        parts += [repr(list(training.rows.items()))]
    parts += [repr(list(anchors)), repr(sorted(groups.items())), repr(sorted(kept)), repr(traps)]
    return digest(*parts)


def _graphs(graph: Graph) -> Iterator[Graph]:
    """A graph and those of the branches, loops and derivatives in it."""
    yield graph
    for node in graph.nodes:
        inner = derivative_of(node) or _attribute(node)
        if inner is not None and hasattr(inner, "graph"):
            yield from _graphs(inner.graph)


def _attribute(node: Node) -> Any:
    """What an attribute node stands for; None for other nodes."""
    if node.op != "get_attr":
        return None
    return operator.attrgetter(str(node.target))(node.graph.owning_module)


def _opaque(node: Node) -> bool:
    if node.op == "get_attr":
        # Graphs are described; the text of the graph does not show anything else.
        return not isinstance(_attribute(node), GraphModule)
    target = node.target
    return isinstance(target, OpOverload) and schema_name(target) in _OPAQUE
