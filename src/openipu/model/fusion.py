"""Which elementwise instructions are one kernel."""

from collections import defaultdict
from collections.abc import Sequence

from openipu.model.estimate import OperationKind, Pass
from openipu.model.flatten import ALIASES, Flat

Kinds = Sequence[OperationKind | None]


def fused(flat: Flat, kinds: Kinds, phases: Sequence[tuple[Pass, int]]) -> list[int]:
    """The group of each elementwise instruction: the number of one of its members.

    Between two instructions of one depth there is no kernel of another kind, so what is connected and of one depth,
    size, layer and pass can be one kernel.

    Args:
      flat: the program.
      kinds: the class of every instruction; None for what takes no time.
      phases: the pass and the stage of every instruction.
    """
    values, instructions = flat.values, flat.instructions
    depth = [0] * len(values)
    own: list[int] = []
    maker: dict[int, int] = {}
    for i, one in enumerate(instructions):
        at = max((depth[v] for v in one.inputs), default=0)
        own.append(at)
        barrier = kinds[i] not in (None, OperationKind.ELEMENTWISE)
        for v in one.outputs:
            depth[v] = at + 1 if barrier else at
            maker[v] = i
    consumers: dict[int, set[int]] = defaultdict(set)
    for i, one in enumerate(instructions):
        for v in one.inputs:
            if v in maker:
                consumers[maker[v]].add(i)
    returned = {v for v in flat.outputs if v is not None}

    def key(i: int) -> tuple:
        one = instructions[i]
        size = max(values[v].size for v in one.outputs)
        return (*phases[i], one.layer, one.count, size, own[i])

    # Work that one later kernel alone uses is done there: what was kept for it is kept as it is.
    for i in reversed(range(len(instructions))):
        if kinds[i] is not OperationKind.ELEMENTWISE or returned.intersection(instructions[i].outputs):
            continue
        after = _through(flat, consumers[i], kinds, consumers)
        if len(after) == 1:
            (j,) = after
            if kinds[j] is OperationKind.ELEMENTWISE and key(i)[:-1] == key(j)[:-1]:
                own[i] = own[j]
    parent = list(range(len(instructions)))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i in range(len(instructions)):
        if kinds[i] is not OperationKind.ELEMENTWISE:
            continue
        for j in _through(flat, consumers[i], kinds, consumers):
            if kinds[j] is OperationKind.ELEMENTWISE and key(i) == key(j):
                parent[find(j)] = find(i)
    return [find(i) for i in range(len(instructions))]


def _through(flat: Flat, found: set[int], kinds: Kinds, consumers: dict[int, set[int]]) -> set[int]:
    """Consumers, seen through views."""
    result: set[int] = set()
    pending = list(found)
    while pending:
        i = pending.pop()
        if kinds[i] is None and flat.instructions[i].primitive in ALIASES:
            pending.extend(consumers[i])
        else:
            result.add(i)
    return result
