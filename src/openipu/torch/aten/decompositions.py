"""Which operations torch takes apart before we lower them: all that have no lowering of their own."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from openipu.torch.aten import registry


def table() -> dict[Any, Callable]:
    """The decompositions to give to `ExportedProgram.run_decompositions`."""
    return dict(_table(registry.size()))


@functools.lru_cache(maxsize=1)
def _table(_: int) -> dict[Any, Callable]:
    # Making the table takes a third of a second, so it is kept until another lowering is registered.
    found = torch.export.default_decompositions()
    # Deleting makes the export keep an operation whole, also one that is a composite to torch itself.
    for target in list(found.keys()):
        if registry.find(target) is not None or registry.refused(target):
            del found[target]
    table = dict(found.items())
    for target in _more():
        if registry.find(target) is None and not registry.refused(target):
            table[target] = torch._decomp.decomposition_table[target]
    return table


@functools.cache
def _more() -> tuple[torch._ops.OpOverload, ...]:
    """Decompositions torch has beyond the Core ATen ones."""
    default = set(torch.export.default_decompositions().keys())
    return tuple(
        target
        for target in torch._decomp.decomposition_table
        if isinstance(target, torch._ops.OpOverload)
        and target.namespace == "aten"
        and target not in default
        and not target._schema.is_mutable
    )
