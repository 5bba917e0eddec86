"""Names of the values inside a captured module, as programs that anchor them know them."""

import contextlib
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from openipu.program import marks
from openipu.torch.aten.evaluate import Around
from openipu.torch.boundary import OpOverload
from openipu.torch.capture.flat_module import PREFIX

# What the backend calls the operations that programs look at most; all others keep torch's name in its style.
_BACKEND = {
    "convolution": "Conv",
    "linear": "MatMul",
    "mm": "MatMul",
    "bmm": "MatMul",
    "addmm": "Gemm",
    "_native_batch_norm_legit_functional": "BatchNormalization",
    "_native_batch_norm_legit_no_training": "BatchNormalization",
    "_native_batch_norm_legit": "BatchNormalization",
    "native_group_norm": "GroupNormalization",
    "native_layer_norm": "LayerNormalization",
    "max_pool2d_with_indices": "MaxPool",
    "max_pool3d_with_indices": "MaxPool",
    "avg_pool2d": "AveragePool",
    "avg_pool3d": "AveragePool",
    "_softmax": "Softmax",
    "_log_softmax": "LogSoftmax",
    "nll_loss_forward": "Nll",
    "view": "Reshape",
    "permute": "Transpose",
    "embedding": "Gather",
    "cat": "Concat",
}


def activations(graph: Graph, scoped: bool = True) -> dict[str, Node]:
    """The values computed by the operations of a graph, by name: `layer1/conv/Conv:0`.

    Args:
      graph: of a captured module.
      scoped: whether the names of modules are part of the names.

    Returns:
      Nodes by name, in the order in which they are computed. The number behind the colon counts the values of one
      module that would have the same name.
    """
    found: dict[str, Node] = {}
    counts: dict[str, int] = {}
    for node in graph.nodes:
        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        base = "/".join((*(_modules(node) if scoped else ()), _operation(node)))
        counts[base] = counts.get(base, -1) + 1
        found[f"{base}:{counts[base]}"] = node
    return found


def marked(around: Around | None) -> Around:
    """Marks every operation with the module it comes from, within the context it is evaluated in anyway."""

    @contextlib.contextmanager
    def named(node: Node) -> Iterator[None]:
        with contextlib.nullcontext() if around is None else around(node), marks.layer("/".join(_modules(node))):
            yield

    return named


def _modules(node: Node) -> list[str]:
    """The modules around an operation, from the outermost below the user's."""
    stack: dict[str, Any] = node.meta.get("nn_module_stack") or {}
    path = list(stack.values())[-1][0] if stack else ""
    return [part for part in path.removeprefix(PREFIX.rstrip(".")).split(".") if part]


def _operation(node: Node) -> str:
    if node.target is operator.getitem:
        made = node.args[0]
        assert isinstance(made, Node)
        return _operation(made)
    target = node.target
    name = target.name() if isinstance(target, OpOverload) else str(target)
    name = name.partition("::")[2].partition(".")[0] or name
    return _BACKEND.get(name) or "".join(part.capitalize() for part in name.split("_") if part)
