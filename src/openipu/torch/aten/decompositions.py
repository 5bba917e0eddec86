"""Which operations torch takes apart before we lower them: all that have no lowering of their own."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._decomp import _core_aten_decompositions_post_autograd
from torch._export.utils import _get_decomp_for_cia, _is_preservable_cia_op, _special_op_to_preserve_cia
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.export.exported_program import _decompose_exported_program

from openipu.torch.aten import registry


def decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program in operations that we lower, or that nobody can take apart.

    This is `run_decompositions` without its search through all operations torch knows, which takes longer than the
    rest: of the composites, only those in the program and those that are kept whole can be met.
    """
    kept = dict.fromkeys(_kept(registry.size()), _special_op_to_preserve_cia)
    composites = [op for op in _operations(program.graph_module) if _is_preservable_cia_op(op) and op not in kept]
    with unset_fake_temporarily():
        return _decompose_exported_program(
            program,
            cia_to_decomp={**kept, **{op: _get_decomp_for_cia(op) for op in composites}},
            python_decomp_table=table(),
            joint_loss_index=None,
            decompose_custom_triton_ops=False,
        )


def _operations(module: torch.fx.GraphModule) -> set[torch._ops.OpOverload]:
    """All that are called in a graph, and in the branches and loops inside it."""
    graphs = [part.graph for part in module.modules() if isinstance(part, torch.fx.GraphModule)]
    return {node.target for graph in graphs for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)}


def table() -> dict[Any, Callable]:
    """The decompositions of operations that are no composites to torch."""
    return dict(_table(registry.size()))


# Both are kept until another lowering is registered.
@functools.lru_cache(maxsize=1)
def _table(_: int) -> dict[Any, Callable]:
    core = _core_aten_decompositions_post_autograd()
    more = {target: found for target, found in torch._decomp.decomposition_table.items() if _is_plain(target)}
    return {
        target: found
        for target, found in {**more, **core}.items()
        if registry.find(target) is None and not registry.refused(target) and not _is_preservable_cia_op(target)
    }


@functools.lru_cache(maxsize=1)
def _kept(_: int) -> tuple[torch._ops.OpOverload, ...]:
    """The composites that are lowered, or refused by name, as a whole."""
    overloads = dict.fromkeys(overload for name in registry.names() for overload in _overloads(name))
    return tuple(overload for overload in overloads if _is_preservable_cia_op(overload))


def _overloads(name: str) -> Iterator[torch._ops.OpOverload]:
    """The operation `namespace::name.overload`; without an overload, all that the operation has."""
    namespace, _, rest = name.partition("::")
    packet_name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), packet_name)
    for wanted in [overload] if overload else packet.overloads():
        yield getattr(packet, wanted)


def _is_plain(target: Any) -> bool:
    """Whether a decomposition beyond the Core ATen ones is of an operation that can occur."""
    overload = isinstance(target, torch._ops.OpOverload)
    return overload and target.namespace == "aten" and not target._schema.is_mutable
