"""A captured graph as lines of text that tell it from any other graph."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph


def lines(graph: Graph) -> Iterator[str]:
    """One line for each node: what it is, what it computes, what was noted on it."""
    for node in graph.nodes:
        yield f"{node.format_node()} {_kind(node.meta.get('val'))} {sorted(node.meta.get('custom', {}).items())}"


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{tuple(value.shape)}"
    if isinstance(value, list | tuple):
        return str([_kind(item) for item in value])
    return type(value).__name__
