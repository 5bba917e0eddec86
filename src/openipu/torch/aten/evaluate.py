"""Evaluation of a captured graph, operation by operation, on arrays or tracers."""

import contextlib
import operator
import os
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import torch
from jax import lax
from torch.fx import Graph, Node
from torch.fx.node import map_arg

import openipu
from openipu.torch.aten.dtypes import known, to_jax
from openipu.torch.aten.registry import Context, Lowering, find_for, reason
from openipu.torch.boundary import OpOverload
from openipu.torch.exceptions import UnsupportedError

Around = Callable[[Node], contextlib.AbstractContextManager]

# Where lines are that the user did not write.
_LIBRARIES = (os.path.dirname(torch.__file__), os.path.dirname(openipu.__file__))

# Under this name `capture` notes on a node that torch computes it without gradient.
STOPPED = "openipu_stopped"


@attrs.frozen
class Step:
    """One operation to evaluate: a node, how, its number, and whether it draws random numbers."""

    node: Node
    lowering: Lowering
    number: int
    random: bool


def steps(graph: Graph) -> list[Step]:
    """The operations of a graph in order.

    Raises:
      UnsupportedError: naming every operation that cannot be lowered, and where the user's module calls it.
    """
    found, missing = [], []
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is operator.getitem:
            lowering: Lowering | None = Lowering(operator.getitem)
        else:
            lowering = find_for(node)
        problem = reason(node.target) if lowering is None else _bad_value(node)
        if problem is not None:
            missing.append((node, problem))
        else:
            assert lowering is not None
            found.append(Step(node, lowering, len(found), lowering.draws(node)))
    if missing:
        raise UnsupportedError(_complaint(missing))
    return found


def run(
    todo: Sequence[Step],
    env: dict[Node, Any],
    key: jax.Array | None,
    around: Around | None = None,
) -> dict[Node, Any]:
    """Evaluate steps in order, adding their values to `env`, which holds those of the graph's placeholders."""

    def lookup(node: Node) -> Any:
        # The graphs of branches and loops are attributes; their lowerings know them already.
        return env.get(node) if node.op == "get_attr" else env[node]

    for step in todo:
        node, lowering = step.node, step.lowering
        args = map_arg(node.args, lookup)
        kwargs = map_arg(node.kwargs, lookup)
        with contextlib.nullcontext() if around is None else around(node):
            if lowering.context:
                own = jax.random.fold_in(_given(key, node), step.number) if step.random else None
                args = (Context(node, own), *args)
            value = lowering.function(*args, **kwargs)
            if node.target is not operator.getitem:
                value = _conform(node, node.meta.get("val"), value)
        env[node] = value
    return env


def _given(key: jax.Array | None, node: Node) -> jax.Array:
    if key is None:
        raise ValueError(f"Expected a random key, because the module uses {node.target}. Received: key=None.")
    return key


def _conform(node: Node, recorded: Any, value: Any) -> Any:
    """A result with the dtype torch recorded; a wrong shape would be a mistake in the lowering."""
    if isinstance(recorded, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(recorded):
            raise TypeError(f"{node.target}: expected {len(recorded)} results. Received: {type(value).__name__}.")
        return tuple(_conform(node, kind, item) for kind, item in zip(recorded, value, strict=True))
    if not isinstance(recorded, torch.Tensor) or value is None:
        return value
    dtype = to_jax(recorded.dtype)
    value = value.astype(dtype) if hasattr(value, "astype") else jnp.asarray(value, dtype)
    if value.shape != tuple(recorded.shape):
        raise TypeError(f"{node.target}: expected shape {tuple(recorded.shape)}. Received: {value.shape}.")
    if node.meta.get("custom", {}).get(STOPPED):
        value = lax.stop_gradient(value)
    return value


def _bad_value(node: Node) -> str | None:
    """What is wrong with the type of a result, if anything."""
    leaves = node.meta.get("val")
    for leaf in leaves if isinstance(leaves, list | tuple) else [leaves]:
        if isinstance(leaf, torch.Tensor):
            if not all(isinstance(size, int) for size in leaf.shape):
                return "the shape of its result depends on the data, and an IPU program has static shapes"
            if not known(leaf.dtype) or leaf.layout != torch.strided:
                return f"it computes a {leaf.layout} tensor of {leaf.dtype}".replace("torch.", "")
    return None


def _complaint(missing: list[tuple[Node, str]]) -> str:
    lines, seen, failed = [], set(), set()
    for node, problem in missing:
        failed.add(node)
        if not failed.isdisjoint(node.all_input_nodes):
            # It is no problem of its own: what it is computed from cannot be computed.
            continue
        line = f"{_title(node)}: {problem}\n    {source_line(node)}"
        if line not in seen:
            seen.add(line)
            lines.append(line)
    return "The module uses operations that openipu does not support. Replace them, or compute them on the host:\n" + (
        "\n".join(lines)
    )


def _title(node: Node) -> str:
    target = node.target
    return target.name() if isinstance(target, OpOverload) else str(target)


def source_line(node: Node) -> str:
    """The innermost line of the user's own code that produced an operation, as far as torch recorded it."""
    trace = node.meta.get("stack_trace") or ""
    frames = [part.strip() for part in trace.split("File ") if part.strip()]
    own = [part for part in frames if not part.strip('"').startswith(_LIBRARIES)]
    chosen = (own or [""])[-1]
    return "File " + " ".join(chosen.split()) if chosen else "(torch recorded no line)"
