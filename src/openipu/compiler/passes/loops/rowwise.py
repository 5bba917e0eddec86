"""Small operations that go row by row through a batch: threads share out the rows of all of them together."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any

from jax.extend.core import Var

from openipu.compiler.passes.jaxprs import aval_of
from openipu.compiler.passes.loops.operations import Elementwise, Operation, Parts, Product, Reduction, Rows
from openipu.compiler.passes.loops.views import View

# Fewer rows are not worth sharing out.
_FEWEST = 8


def split(
    operations: Sequence[Operation], needs: Mapping[Operation, Set[Operation]], barred: Set[Operation]
) -> tuple[list[Operation], list[Operation], list[Operation], int]:
    """Operations cut in what has to come before, what goes row by row, and the rest; and how many rows there are.

    Args:
      operations: in an order in which they can be computed.
      needs: what each has to wait for.
      barred: operations that cannot go row by row.
    """
    weights: Counter[int] = Counter()
    for operation in operations:
        weights[_rows(operation)] += int(operation.cycles)
    count = max((n for n in weights if n >= _FEWEST), key=lambda n: weights[n], default=0)
    if not count:
        return [], [], list(operations), 0
    before: list[Operation] = []
    chain: list[Operation] = []
    rest: list[Operation] = []
    widths: dict[Var, int] = {}
    for operation in operations:
        waits = needs[operation]
        if waits.isdisjoint(rest) and operation not in barred and _fits(operation, count, widths):
            chain.append(operation)
            widths |= {var: aval_of(var).size // count for var in operation.kept}
        elif waits.isdisjoint(rest) and waits.isdisjoint(chain):
            before.append(operation)
        else:
            rest.append(operation)
    wanted = {o for operation in chain for o in needs[operation]}
    for operation in reversed(before):
        if operation in wanted:
            wanted |= needs[operation]
    first = [o for o in before if o in wanted]
    later = {*rest, *(o for o in before if o not in wanted)}
    return first, chain, [o for o in operations if o in later], count


def _rows(operation: Operation) -> int:
    """How many rows an operation has, if it goes row by row."""
    match operation:
        case Elementwise() if len(operation.sizes) == 1:
            return operation.sizes[0]
        case Reduction():
            return operation.extent[1]
        case _:
            return operation.extent[0]


def _fits(operation: Operation, count: int, widths: Mapping[Any, int]) -> bool:
    """Whether a row of an operation needs only the same row of what others of the chain make."""
    if _rows(operation) != count:
        return False
    match operation:
        case Elementwise():
            lead = range(max(1, len(operation.sizes) - 1))
            return all(_is_by_row(view, lead, count, widths) for view in operation.views)
        case Product():
            left = operation.left.base
            if operation.stack != 1 or operation.is_cut or operation.right.base in widths:
                return False
            _, row_step, step = operation.left_steps
            reach = (operation.depth - 1) * step
            return left not in widths or (
                operation.left.offset == 0 and row_step == widths[left] and reach < widths[left]
            )
        case Reduction():
            return _is_by_row(operation.given, operation.kept_dims, count, widths)
        case Parts():
            return operation.given.base not in widths
        case Rows():
            return operation.table.base not in widths and operation.numbers.base not in widths
        case _:
            return False


def _is_by_row(view: View, lead: Sequence[int], count: int, widths: Mapping[Any, int]) -> bool:
    """Whether a view reads, of a value of the chain, the same rows as it makes."""
    if view.base not in widths:
        return True
    width = widths[view.base]
    others = [d for d in range(len(view.sizes)) if d not in lead]
    reach = sum((view.sizes[d] - 1) * view.steps[d] for d in others)
    return view.offset == 0 and view.merged(lead) == (count, width) and reach < width
