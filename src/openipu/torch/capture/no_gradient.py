"""Notes in an exported graph on what torch computes without gradient, made before decomposition forgets it."""

from typing import Any

import torch
from torch.fx import GraphModule, Node

from openipu.torch.aten.evaluate import STOPPED

_DETACHING = {torch.ops.aten.detach.default, torch.ops.aten.detach_.default}


def mark_stopped(module: GraphModule) -> None:
    """Inline the regions under `no_grad` and note on their nodes, and on `detach`, that gradients stop there.

    The note is kept under the key that torch carries over to the nodes a decomposition makes of a node.
    """
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target in _DETACHING:
            _note(node)
    while regions := [node for node in module.graph.nodes if _is_region(node)]:
        for node in regions:
            _inline(module, node)
    module.recompile()


def _is_region(node: Node) -> bool:
    return node.op == "call_function" and node.target is torch.ops.higher_order.wrap_with_set_grad_enabled


def _note(node: Node) -> None:
    node.meta["custom"] = {**node.meta.get("custom", {}), STOPPED: True}


def _inline(module: GraphModule, region: Node) -> None:
    enabled, body, *args = region.args
    assert isinstance(body, Node) and isinstance(body.target, str)
    inner = module.get_submodule(body.target)
    assert isinstance(inner, GraphModule)
    stopped = not enabled
    placeholders = [node for node in inner.graph.nodes if node.op == "placeholder"]
    values: dict[Node, Any] = dict(zip(placeholders, args, strict=True))
    with module.graph.inserting_before(region):
        for node in inner.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            if node.op == "get_attr":
                _adopt(module, inner, node)
            values[node] = copy = module.graph.node_copy(node, values.__getitem__)
            if node.op == "call_function" and (stopped or node.target in _DETACHING):
                _note(copy)
    results = next(node for node in inner.graph.nodes if node.op == "output").args[0]
    outputs = [values.get(item, item) for item in results]
    for user in list(region.users):
        # The users of a region pick from its tuple of results.
        number = user.args[1]
        assert isinstance(number, int)
        user.replace_all_uses_with(outputs[number])
        module.graph.erase_node(user)
    module.graph.erase_node(region)
    if not body.users:
        module.graph.erase_node(body)


def _adopt(module: GraphModule, inner: GraphModule, node: Node) -> None:
    """Give the outer module what an inlined node reads from the inner one, under a name that is free."""
    assert isinstance(node.target, str)
    value = getattr(inner, node.target)
    name = node.target
    while getattr(module, name, value) is not value:
        name += "_"
    setattr(module, name, value)
    node.target = name
