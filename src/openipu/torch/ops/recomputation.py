"""Checkpoints of recomputation: marks on values that an IPU would keep for the backward pass."""

from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch.fx import Graph

from openipu.program import marks
from openipu.torch.aten.registry import lowering


@torch.library.custom_op("openipu::checkpoint", mutates_args=())
def mark_checkpoint(x: torch.Tensor) -> torch.Tensor:
    """The value itself, as one to be kept."""
    return x.clone()


@mark_checkpoint.register_fake
def _fake(x: Any) -> torch.Tensor:
    return torch.empty_like(x)


@lowering("openipu::checkpoint")
def _kept(x: jax.Array) -> jax.Array:
    if not marks.names_wanted():
        return x
    with marks.kept():
        return jnp.copy(x)


def has_checkpoints(graph: Graph) -> bool:
    """Whether any value is marked."""
    return any(node.target is torch.ops.openipu.checkpoint.default for node in graph.nodes)
