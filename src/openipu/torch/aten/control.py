"""Branches and loops on values: `torch.cond` and `torch.while_loop`."""

from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax
from torch.fx import GraphModule, Node

from openipu.torch.aten import evaluate
from openipu.torch.aten.registry import Context, Lowering, higher


class Body:
    """A graph inside a graph, as a function of arrays."""

    def __init__(self, node: Any) -> None:
        assert isinstance(node, Node) and isinstance(node.target, str) and node.graph.owning_module is not None
        module = node.graph.owning_module.get_submodule(node.target)
        assert isinstance(module, GraphModule)
        self._steps = evaluate.steps(module.graph)
        self._placeholders = [inner for inner in module.graph.nodes if inner.op == "placeholder"]
        self._results = next(inner for inner in module.graph.nodes if inner.op == "output").args[0]
        self.random = any(step.random for step in self._steps)

    def __call__(self, operands: Any, key: jax.Array | None) -> tuple:
        env = evaluate.run(self._steps, dict(zip(self._placeholders, operands, strict=True)), key)
        results = self._results if isinstance(self._results, list | tuple) else [self._results]
        return tuple(env[result] if isinstance(result, Node) else jnp.asarray(result) for result in results)


@higher(torch.ops.higher_order.cond)
def _cond(node: Node) -> Lowering:
    branches = [Body(branch) for branch in node.args[1:3]]

    def run(context: Context, condition: Any, _: Any, __: Any, operands: Any = ()) -> tuple:
        true, false = (lambda args, body=body: body(args, context.key) for body in branches)
        return lax.cond(jnp.reshape(condition, ()) != 0, true, false, tuple(operands))

    return Lowering(run, context=True, random=any(branch.random for branch in branches))


@higher(torch.ops.higher_order.while_loop)
def _while_loop(node: Node) -> Lowering:
    condition, body = (Body(part) for part in node.args[:2])

    def run(context: Context, _: Any, __: Any, carried: Any, fixed: Any = ()) -> tuple:
        def goes_on(state: tuple) -> jax.Array:
            return jnp.reshape(condition((*state[1:], *fixed), None)[0], ()) != 0

        def step(state: tuple) -> tuple:
            # Each turn draws random numbers of its own.
            key = None if context.key is None else jax.random.fold_in(context.key, state[0])
            return (state[0] + 1, *body((*state[1:], *fixed), key))

        return lax.while_loop(goes_on, step, (jnp.int32(0), *carried))[1:]

    return Lowering(run, context=True, random=body.random)
