"""The order of a step's operations: phases that all threads go through together."""

from collections.abc import Mapping, Sequence
from typing import Literal

import attrs
from jax.extend.core import Var

from openipu.compiler.passes.loops import rowwise
from openipu.compiler.passes.loops.fusion import reads
from openipu.compiler.passes.loops.operations import Elementwise, Joined, Operation, Product, Rows

# Cycles that are worth sharing out: all threads wait for each other afterwards.
LEAST = 6000
# Cycles of a step that keep one more thread busy.
_EACH = 20_000
MOST_THREADS = 16
# A row that is shared out has at least so many numbers for each thread.
_WIDE = 128


@attrs.frozen(eq=False)
class Chain:
    """Operations one after another; in a shared phase, a part of one reads the same part of those before.

    Attributes:
      operations: in their order.
      split: how threads share them out.
      rows: of a chain that is shared out by rows, how many; an operation that has one row of so many columns has as
        many rows of one.
    """

    operations: tuple[Operation, ...]
    split: Literal["rows", "columns", "depth", "whole"]
    rows: int


@attrs.frozen(eq=False)
class Phase:
    """What is done before anything of the next phase.

    Attributes:
      is_shared: whether every thread does a part of every chain, or one thread everything.
      chains: that have nothing to do with each other.
    """

    is_shared: bool
    chains: tuple[Chain, ...]

    @property
    def operations(self) -> list[Operation]:
        """Of all chains."""
        return [o for chain in self.chains for o in chain.operations]


def phases(operations: Sequence[Operation], overwritten: Mapping[Operation, Sequence[Var]]) -> list[Phase]:
    """As few phases as the order allows.

    Args:
      operations: all of them.
      overwritten: values of the step before that an operation overwrites: whoever reads them comes first.
    """
    made = {var: operation for operation in operations for var in operation.kept}
    needs = {o: {made[var] for var in reads(o) if var in made} for o in operations}
    for operation, variables in overwritten.items():
        needs[operation] |= {o for o in operations if o is not operation and reads(o) & set(variables)}
    barred = {o for o, variables in overwritten.items() if variables}
    done: set[Operation] = set()
    found: list[Phase] = []
    left = list(operations)
    while left:
        alone = _alone(left, needs, done)
        found += _small(alone, needs, barred)
        done.update(alone)
        left = [o for o in left if o not in done]
        chains = _chains(left, needs, done, overwritten)
        if chains:
            found.append(Phase(True, tuple(Chain(tuple(c), _split_of(c), c[0].extent[0]) for c in chains)))
        done.update(o for chain in chains for o in chain)
        assert alone or chains, "operations that wait for each other"
        left = [o for o in left if o not in done]
    return found


def _small(
    operations: Sequence[Operation], needs: Mapping[Operation, set[Operation]], barred: set[Operation]
) -> list[Phase]:
    """Phases of small operations: what goes row by row is shared out together, if it is worth it."""
    before, chain, rest, rows = rowwise.split(operations, needs, barred)
    if sum(o.cycles for o in chain) < LEAST:
        before, chain, rest = [], [], list(operations)
    found = []
    if before:
        found.append(_by_one(before))
    if chain:
        found.append(Phase(True, (Chain(tuple(chain), "rows", rows),)))
    if rest:
        found.append(_by_one(rest))
    return found


def _by_one(operations: Sequence[Operation]) -> Phase:
    return Phase(False, tuple(Chain((o,), "whole", 0) for o in operations))


def threads(found: Sequence[Phase]) -> int:
    """How many threads a step keeps busy at most."""
    shared = sum(o.cycles for phase in found if phase.is_shared for o in phase.operations)
    return max(1, min(MOST_THREADS, int(shared / _EACH)))


def _is_shared(operation: Operation) -> bool:
    return operation.cycles >= LEAST and not isinstance(operation, Joined)


def _split_of(chain: Sequence[Operation]) -> Literal["rows", "columns", "depth"]:
    """How threads share a chain out, so that each finds what it made before: weights are cut by rows."""
    first = chain[0]
    rows, columns = first.extent
    if isinstance(first, Product):
        if first.is_cut:
            return "depth"
        # Weights that are read in the other order are cut by the columns of the result.
        reads_rows = first.right_steps[1] == 1 and first.right_steps[2] != 1
        return "columns" if (reads_rows and columns >= _WIDE) or rows < columns // 4 else "rows"
    if isinstance(first, Rows):
        return "columns" if columns >= _WIDE else "rows"
    return "rows" if rows >= columns // 16 and rows > 1 else "columns"


def _alone(
    left: Sequence[Operation], needs: Mapping[Operation, set[Operation]], done: set[Operation]
) -> list[Operation]:
    """What one thread may as well do, one after another."""
    found: list[Operation] = []
    known = set(done)
    is_growing = True
    while is_growing:
        is_growing = False
        for operation in left:
            if operation not in known and not _is_shared(operation) and needs[operation] <= known:
                found.append(operation)
                known.add(operation)
                is_growing = True
    return found


def _chains(
    left: Sequence[Operation],
    needs: Mapping[Operation, set[Operation]],
    done: set[Operation],
    overwritten: Mapping[Operation, Sequence[Var]],
) -> list[list[Operation]]:
    """What is shared out next: large operations, each with those that go on with the same part of its result."""
    chains: list[list[Operation]] = []
    taken: set[Operation] = set()
    for operation in left:
        if operation in taken or not _is_shared(operation) or not needs[operation] <= done:
            continue
        chain = [operation]
        for other in left:
            follows = other not in taken and other not in chain and needs[other] <= done | set(chain)
            if follows and needs[other] & set(chain) and _goes_on(other, chain, overwritten.get(other, ())):
                chain.append(other)
        taken.update(chain)
        chains.append(chain)
    return chains


def _goes_on(operation: Operation, chain: Sequence[Operation], overwritten: Sequence[Var]) -> bool:
    """Whether a part of an operation needs, and overwrites, no more than the same part of what the chain works on."""
    if not isinstance(operation, Elementwise) or operation.extent != chain[0].extent:
        return False
    made = {var for o in chain for var in o.kept}
    if not all(part_by_part(operation, var) for var in made):
        return False
    readers = [(o, var) for o in chain for var in overwritten if var in reads(o)]
    return all(isinstance(o, Elementwise) and part_by_part(o, var) for o, var in readers)


def part_by_part(operation: Operation, var: Var) -> bool:
    """Whether an operation reads of a variable, if anything, the numbers in whose places it writes."""
    return all(view.is_all_of(var) for view in operation.views if view.base is var)
