"""Which operations torch takes apart before we lower them: all that have no lowering of their own."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from openipu.torch import boundary
from openipu.torch.aten import registry
from openipu.torch.boundary import OpOverload


def decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program in operations that we lower, or that nobody can take apart.

    This is `run_decompositions` without its search through all operations torch knows, which takes longer than the
    rest: of the composites, only those in the program and those that are kept whole can be met.
    """
    kept = _kept(registry.size())
    composites = [op for op in _operations(program.graph_module) if boundary.is_composite(op) and op not in kept]
    return boundary.decompose(program, kept, composites, table())


def _operations(module: torch.fx.GraphModule) -> set[OpOverload]:
    """All that are called in a graph, and in the branches and loops inside it."""
    graphs = [part.graph for part in module.modules() if isinstance(part, torch.fx.GraphModule)]
    return {node.target for graph in graphs for node in graph.nodes if isinstance(node.target, OpOverload)}


def table() -> dict[Any, Callable]:
    """The decompositions of operations that are no composites to torch."""
    return dict(_table(registry.size()))


# Both are kept until another lowering is registered.
@functools.lru_cache(maxsize=1)
def _table(_: int) -> dict[Any, Callable]:
    core = boundary.core_decompositions()
    more = {target: found for target, found in boundary.all_decompositions().items() if _is_plain(target)}
    return {
        target: found
        for target, found in {**more, **core}.items()
        if registry.find(target) is None and not registry.refused(target) and not boundary.is_composite(target)
    }


@functools.lru_cache(maxsize=1)
def _kept(_: int) -> tuple[OpOverload, ...]:
    """The composites that are lowered, or refused by name, as a whole."""
    overloads = dict.fromkeys(overload for name in registry.names() for overload in _overloads(name))
    return tuple(overload for overload in overloads if boundary.is_composite(overload))


def _overloads(name: str) -> Iterator[OpOverload]:
    """The operation `namespace::name.overload`; without an overload, all that the operation has."""
    namespace, _, rest = name.partition("::")
    packet_name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), packet_name)
    for wanted in [overload] if overload else packet.overloads():
        yield getattr(packet, wanted)


def _is_plain(target: Any) -> bool:
    """Whether a decomposition beyond the Core ATen ones is of an operation that can occur."""
    overload = isinstance(target, OpOverload)
    return overload and target.namespace == "aten" and not boundary.is_mutable(target)
