"""Which operations torch takes apart before we lower them: all that have no lowering of their own."""

import functools
from typing import Any

import torch

from openipu.torch.aten import registry


def table() -> Any:
    """The decompositions to give to `ExportedProgram.run_decompositions`, a fresh table at each call."""
    found = torch.export.default_decompositions()
    # Deleting makes the export keep an operation whole, also one that is a composite to torch itself.
    for target in list(found.keys()):
        if registry.find(target) is not None or registry.refused(target):
            del found[target]
    for target in _more():
        if registry.find(target) is None and not registry.refused(target):
            found[target] = torch._decomp.decomposition_table[target]
    return found


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
