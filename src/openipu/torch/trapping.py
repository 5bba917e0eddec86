"""Floating-point exceptions: the first operation that makes an infinity or a NaN of ordinary numbers is remembered."""

from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch.fx import Node

from openipu.torch.aten.evaluate import place
from openipu.torch.capture import Captured
from openipu.torch.exceptions import Error

# The name of the number that says where, kept on the device: 0 as long as nothing happened.
TRAP = "floating-point exceptions"
_BACKWARD, _UPDATE = -1, -2
_COMPARISONS = {
    getattr(torch.ops.aten, name) for name in ("eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum", "amax", "amin")
}


class Trap:
    """Looks at every operation of one forward pass, and at what follows from it."""

    def __init__(self) -> None:
        self.number = jnp.zeros((), jnp.int32)
        self._count = 0

    def observe(self, node: Node, given: Any, value: Any) -> None:
        """Look at an operation, its arguments and its value."""
        self._count += 1
        results, inputs = _floats(value), _floats(given)
        compares = getattr(node.target, "overloadpacket", None) in _COMPARISONS
        if compares and inputs:
            self._note(_any(jnp.isnan, inputs), self._count)
        if results:
            new_nan = _any(jnp.isnan, results) & ~_any(jnp.isnan, inputs)
            new_infinity = _any(jnp.isinf, results) & ~_any(lambda x: ~jnp.isfinite(x), inputs)
            self._note(new_nan | new_infinity, self._count)

    def _note(self, happened: jax.Array, where: int) -> None:
        self.number = _first(self.number, happened, where)


def after_backward(number: jax.Array, gradients: list[jax.Array]) -> jax.Array:
    """The number, after a look at gradients."""
    return _first(number, _any(lambda x: ~jnp.isfinite(x), gradients), _BACKWARD)


def at_the_end(number: jax.Array, weights: list[jax.Array]) -> jax.Array:
    """The number, after a look at the weights that updates have left."""
    return _first(number, _any(lambda x: ~jnp.isfinite(x), weights), _UPDATE)


def _first(number: jax.Array, happened: jax.Array, where: int) -> jax.Array:
    return jnp.where((number == 0) & happened, where, number).astype(jnp.int32)


def refuse(number: int, captured: Captured) -> None:
    """Raises the error that a number stands for."""
    where = {_BACKWARD: "in the backward pass", _UPDATE: "in a weight update"}.get(number)
    if where is None:
        nodes = [node for node in captured.graph.nodes if node.op == "call_function"]
        where = f"in {nodes[number - 1].target} ({place(nodes[number - 1])})"
    raise Error(
        f"A floating-point exception happened {where}: an overflow, a division by zero, or an operation that is not "
        "defined for its values. Options.Precision.enableFloatingPointExceptions(False) lets such values pass."
    )


def _floats(values: Any) -> list[jax.Array]:
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(values) if isinstance(leaf, jax.Array | float)]
    return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]


def _any(test: Any, values: list[jax.Array]) -> jax.Array:
    found = jnp.zeros((), bool)
    for value in values:
        found = found | jnp.any(test(value))
    return found
