"""The number of iterations of a loop, where constants alone decide it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from openipu.tensorflow.stablehlo.evaluate import Frame, fold
from openipu.tensorflow.stablehlo.parsed.graph import Block, Op

# Counting is cheap but not free: a longer loop runs as it is written.
_LIMIT = 10_000


class _Unknown(Exception):
    """A value that the condition needs depends on data."""


def trip_count(op: Op, values: Sequence[Any], frame: Frame) -> tuple[int, dict[int, np.ndarray]] | None:
    """Count a loop's iterations by running only what its condition needs, on constants; None if that fails.

    Also returns the last values of what was run, by position: the loop that computes the gradient counts with them.
    """
    condition, body = op.blocks
    outer = {i: frame.env[i] for block in op.blocks for i in block.captures}
    carried: list[Any] = [value if _is_known(value) else None for value in values]
    try:
        needed = _needed(condition, body, carried, frame)
        state: list[Any] = list(carried)
        for count in range(_LIMIT):
            if not _evaluate(condition, state, condition.returns, outer, frame)[0]:
                return count, {i: state[i] for i in needed}
            wanted = [body.returns[i] for i in needed]
            for i, value in zip(needed, _evaluate(body, state, wanted, outer, frame), strict=True):
                state[i] = value
    except _Unknown:
        pass
    return None


def _is_known(value: Any) -> bool:
    return type(value) is np.ndarray and value.size <= 16


def _needed(condition: Block, body: Block, carried: list, frame: Frame) -> list[int]:
    """The carried values that decide the condition, now and in later iterations."""
    pending = sorted(_inputs(condition, condition.returns, frame))
    needed: set[int] = set()
    while pending:
        index = pending.pop()
        if index in needed:
            continue
        if carried[index] is None:
            raise _Unknown
        needed.add(index)
        pending.extend(_inputs(body, (body.returns[index],), frame))
    return sorted(needed)


def _inputs(block: Block, wanted: Sequence[int], frame: Frame) -> set[int]:
    """The positions of the arguments that the values `wanted` of a block depend on."""
    makers = {result: op for op in block.ops for result in op.results}
    positions = {value: position for position, value in enumerate(block.args)}
    found: set[int] = set()
    pending, seen = list(wanted), set()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in positions:
            found.add(positions[value])
            continue
        maker = makers.get(value)
        if maker is None:
            continue
        if maker.name == "func.call":
            callee = frame.program.functions[maker.attr("callee")]
            which = callee.returns[maker.results.index(value)]
            pending.extend(maker.operands[i] for i in _inputs(callee, (which,), frame))
        else:
            pending.extend(maker.operands)
    return found


def _evaluate(
    block: Block, args: Sequence[Any], wanted: Sequence[int], outer: dict[int, Any], frame: Frame
) -> list[np.ndarray]:
    makers = {result: op for op in block.ops for result in op.results}
    env: dict[int, Any] = {**outer, **dict(zip(block.args, args, strict=True))}

    def value(number: int) -> np.ndarray:
        if number not in env:
            op = makers[number]
            if op.name == "func.call":
                callee = frame.program.functions[op.attr("callee")]
                which = callee.returns[op.results.index(number)]
                positions = _inputs(callee, (which,), frame)
                inner = [value(o) if i in positions else None for i, o in enumerate(op.operands)]
                (env[number],) = _evaluate(callee, inner, (which,), {}, frame)
            else:
                folded = fold(op, [value(operand) for operand in op.operands])
                if folded is None:
                    raise _Unknown
                (env[number],) = folded
        if not _is_known(env[number]):
            raise _Unknown
        return env[number]

    return [value(number) for number in wanted]
