"""How often a program carries out a custom call, where constants alone decide it."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from openipu.tensorflow.stablehlo.blocks.trip_count import trip_count
from openipu.tensorflow.stablehlo.evaluate import Frame, fold
from openipu.tensorflow.stablehlo.parsed.graph import Block, Op, Program


class _Unknown(Exception):
    """A loop or a branch around the call depends on data."""


def occurrences(program: Program, call: str, key: str) -> dict[Any, int | None]:
    """Count the calls of one execution, by a value of their configuration.

    Args:
      program: what is executed.
      call: the name of the custom call.
      key: which entry of its configuration tells calls apart.

    Returns:
      For each value of that entry the exact number of calls, None where it depends on data.
    """
    walk = _Walk(program, call, key)
    return {value: walk.count(value) for value in walk.values()}


def places(program: Program, call: str, key: str) -> Counter:
    """In how many places of a program a custom call stands, by a value of its configuration."""
    walk = _Walk(program, call, key)
    found: Counter = Counter()
    pending = list(program.functions.values())
    while pending:
        for op in pending.pop().ops:
            found.update([] if walk.value(op) is None else [walk.value(op)])
            pending.extend(op.blocks)
    return found


class _Walk:
    def __init__(self, program: Program, call: str, key: str) -> None:
        self._program = program
        self._call = call
        self._key = key
        self._inside: dict[int, frozenset] = {}

    def values(self) -> list[Any]:
        """All values that occur, in a stable order."""
        return sorted(self._in_block(self._program.main))

    def count(self, value: Any) -> int | None:
        """The calls with this value, None where that is unknown."""
        main = self._program.main
        try:
            return self._block(main, [None] * len(main.args), {}, value)[value]
        except _Unknown:
            return None

    def value(self, op: Op) -> Any:
        """What tells this call apart, or None for another operation."""
        if op.name != "stablehlo.custom_call" or op.attr("call_target_name") != self._call:
            return None
        config = op.attr("backend_config")
        return (config if isinstance(config, dict) else json.loads(config))[self._key]

    def _in_block(self, block: Block) -> frozenset:
        if id(block) not in self._inside:
            self._inside[id(block)] = frozenset().union(*(self._in_op(op) for op in block.ops))
        return self._inside[id(block)]

    def _in_op(self, op: Op) -> frozenset:
        callee = op.attr("callee") or op.attr("decomposition")
        blocks = [*op.blocks, *([self._program.functions[callee]] if callee else [])]
        own = self.value(op)
        return frozenset(() if own is None else (own,)).union(*map(self._in_block, blocks))

    def _block(self, block: Block, args: Sequence[Any], outer: dict[int, Any], value: Any) -> Counter:
        """Calls in a block whose arguments are constants where they are known, None elsewhere."""
        frame = Frame(self._program, None, None)
        env = frame.env
        env.update(outer)
        env.update(zip(block.args, args, strict=True))
        found: Counter = Counter()
        for op in block.ops:
            values = [env[i] for i in op.operands]
            if value in self._in_op(op):
                found += self._op(op, values, frame, value)
            known = fold(op, values) if all(v is not None for v in values) else None
            env.update(zip(op.results, known or [None] * len(op.results), strict=True))
        return found

    def _op(self, op: Op, values: list, frame: Frame, value: Any) -> Counter:
        if self.value(op) == value:
            return Counter({value: 1})
        callee = op.attr("callee") or op.attr("decomposition")
        if callee:
            return self._block(self._program.functions[callee], values, {}, value)
        if op.name == "stablehlo.while":
            known = trip_count(op, values, frame)
            condition, body = op.blocks
            if known is None or value in self._in_block(condition):
                raise _Unknown
            once = self._inner(body, frame, value)
            return Counter({value: once[value] * known[0]})
        counts = [self._inner(block, frame, value) for block in op.blocks]
        if op.name not in ("stablehlo.if", "stablehlo.case") or len({c[value] for c in counts}) != 1:
            raise _Unknown
        return counts[0]

    def _inner(self, block: Block, frame: Frame, value: Any) -> Counter:
        outer = {i: frame.env[i] for i in block.captures}
        return self._block(block, [None] * len(block.args), outer, value)
