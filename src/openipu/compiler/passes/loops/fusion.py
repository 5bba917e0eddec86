"""Elementwise operations put together, so that what one makes and the next reads is never stored."""

from collections.abc import Iterable, Sequence

from jax.extend.core import Var

from openipu.compiler.passes.loops.operations import Elementwise, Operation

# Instructions of one operation: what they make has to stay in the first cache.
_MOST = 48


def reads(operation: Operation) -> set[Var]:
    """The variables that an operation reads."""
    return {view.base for view in operation.views if isinstance(view.base, Var)} | _plain(operation)


def _plain(operation: Operation) -> set[Var]:
    """Variables that an elementwise operation reads as they are, of others."""
    if not isinstance(operation, Elementwise):
        return set()
    own = {i.result for i in operation.instructions}
    return {o for i in operation.instructions for o in i.operands if isinstance(o, Var)} - own


def fused(operations: Sequence[Operation], results: Iterable[Var]) -> list[Operation]:
    """The same with as few elementwise operations as there can be, each computing its values once.

    Args:
      operations: in an order in which they can be computed.
      results: variables that are read after all of them.
    """
    graph = _Graph(operations)
    for number, operation in enumerate(operations):
        if isinstance(operation, Elementwise):
            for var in sorted(_plain(operation), key=lambda var: graph.maker.get(var, -1)):
                graph.join(graph.maker.get(var), number)
    return graph.operations(set(results))


class _Graph:
    """Operations in groups, and which group needs which."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._all = operations
        self.maker = {var: number for number, operation in enumerate(operations) for var in operation.kept}
        self._group = list(range(len(operations)))
        self._members = [[number] for number in range(len(operations))]
        self._needs = [{self.maker[var] for var in reads(o) if var in self.maker} for o in operations]

    def join(self, before: int | None, after: int) -> None:
        """Puts the groups of two operations together if they are of one size and nothing has to come between them."""
        if before is None or not isinstance(self._all[before], Elementwise):
            return
        one, other = self._group[before], self._group[after]
        first, second = self._all[before], self._all[after]
        assert isinstance(first, Elementwise) and isinstance(second, Elementwise)
        too_many = len(self._members[one]) + len(self._members[other]) > _MOST
        if one == other or too_many or first.sizes != second.sizes or self._between(one, other):
            return
        if self._viewed(one, other):
            return
        for member in self._members[other]:
            self._group[member] = one
        self._members[one] += self._members[other]
        self._members[other] = []
        self._needs[one] = {n for n in self._needs[one] | self._needs[other] if self._group[n] != one}

    def _viewed(self, one: int, other: int) -> bool:
        """Whether the second group reads something of the first in another order than it is made in."""
        made = {var for member in self._members[one] for var in self._all[member].kept}
        return any(view.base in made for member in self._members[other] for view in self._all[member].views)

    def _between(self, one: int, other: int) -> bool:
        """Whether the second group needs something that needs the first."""
        waiting = [self._group[n] for n in self._needs[other] if self._group[n] != one]
        seen: set[int] = set()
        while waiting:
            group = waiting.pop()
            if group == one:
                return True
            if group not in seen:
                seen.add(group)
                waiting.extend(self._group[n] for n in self._needs[group])
        return False

    def operations(self, results: set[Var]) -> list[Operation]:
        """All groups as operations, in an order in which they can be computed."""
        wanted = results | {var for o in self._all if not isinstance(o, Elementwise) for var in reads(o)}
        wanted |= {v.base for o in self._all for v in o.views if isinstance(v.base, Var)}
        for number, operation in enumerate(self._all):
            wanted |= {
                var for var in reads(operation)
                if var in self.maker and self._group[self.maker[var]] != self._group[number]
            }  # fmt: skip
        return [self._together(group, wanted) for group in self._sorted()]

    def _sorted(self) -> list[int]:
        found: list[int] = []
        state: dict[int, bool] = {}
        for start in range(len(self._all)):
            waiting = [(self._group[start], False)]
            while waiting:
                group, is_ready = waiting.pop()
                if is_ready:
                    found.append(group)
                elif group not in state:
                    state[group] = True
                    waiting.append((group, True))
                    waiting.extend((self._group[n], False) for n in self._needs[group] if self._group[n] != group)
        return found

    def _together(self, group: int, wanted: set[Var]) -> Operation:
        members = sorted(self._members[group])
        first = self._all[members[0]]
        if not isinstance(first, Elementwise):
            return first
        instructions = tuple(i for m in members for i in self._all[m].instructions)  # pyright: ignore[reportAttributeAccessIssue]
        return Elementwise(first.sizes, instructions, tuple(i.result for i in instructions if i.result in wanted))
