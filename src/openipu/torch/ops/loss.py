"""Which operation of a captured module is its loss: functions marked while capturing, one found in the graph."""

import contextvars
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import torch
import torch.nn.functional as F
from torch.fx import Graph, Node

from openipu.contexts import during
from openipu.torch.aten.registry import Context, lowering
from openipu.torch.exceptions import Error

# Losses of torch that train a model when nothing names the loss; all else needs `poptorch.identity_loss`.
_NAMES = (
    "nll_loss", "cross_entropy", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div",
    "poisson_nll_loss", "cosine_embedding_loss", "triplet_margin_loss", "ctc_loss", "hinge_embedding_loss", "l1_loss",
    "margin_ranking_loss", "mse_loss", "smooth_l1_loss", "soft_margin_loss",
)  # fmt: skip
_FUNCTIONS = {getattr(place, name) for place in (F, torch) for name in _NAMES if hasattr(place, name)}


@torch.library.custom_op("openipu::loss", mutates_args=())
def mark_loss(x: torch.Tensor) -> torch.Tensor:
    """The value itself, as the result of a loss function."""
    return x.clone()


@mark_loss.register_fake
def _mark_loss_fake(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


_seen: contextvars.ContextVar[dict[Node, jax.Array] | None] = contextvars.ContextVar("openipu_losses", default=None)


@lowering("openipu::loss", context=True)
def _loss(context: Context, x: jax.Array) -> jax.Array:
    seen = _seen.get()
    if seen is not None:
        seen[context.node] = x
    return x


def observing() -> AbstractContextManager[dict[Node, jax.Array]]:
    """Gathers the values of marked losses while a captured module is evaluated."""
    return during(_seen, {})


def marked(function: Callable) -> Callable | None:
    """What to call in place of a torch function, while capturing, if it is a loss; None if it is not."""
    if function not in _FUNCTIONS:
        return None

    def call(*args: Any, **kwargs: Any) -> torch.Tensor:
        if function is F.kl_div and kwargs.get("reduction") == "batchmean":
            # The division comes after the loss operation of the backend, so it is not differentiated.
            total = mark_loss(function(*args, **{**kwargs, "reduction": "sum"}))
            return total / args[0].size(0)
        return mark_loss(function(*args, **kwargs))

    return call


def find_loss(graph: Graph) -> Node:
    """The one loss that training starts from.

    Raises:
      Error: when there is none that a result depends on, or several none of which contains the others.
    """
    output = next(node for node in graph.nodes if node.op == "output")
    losses = [node for node in graph.nodes if _is_loss(node)]
    returned = [node for node in losses if node in ancestors(output)]
    if not returned:
        raise Error("Couldn't find a loss in graph!")
    inner = {node for outer in returned for node in ancestors(outer) if node is not outer}
    final = [node for node in returned if node not in inner]
    if len(final) != 1:
        raise Error(
            "Multiple independent losses found in graph. Graph must have one final loss. Wrap final graph loss in "
            "poptorch.identity_loss."
        )
    return final[0]


def ancestors(node: Node) -> set[Node]:
    """The node and everything it is computed from."""
    found, waiting = {node}, [node]
    while waiting:
        for source in waiting.pop().all_input_nodes:
            if source not in found:
                found.add(source)
                waiting.append(source)
    return found


def _is_loss(node: Node) -> bool:
    return node.op == "call_function" and node.target is torch.ops.openipu.loss.default
