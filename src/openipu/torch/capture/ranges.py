"""Which inputs of a captured module are labels or indices, and of how many things: read from its graph."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from openipu.program import Limit, strictest

_aten = torch.ops.aten
# Where an input goes through these, its numbers are still the same ones.
_SAME = {
    _aten.view, _aten.reshape, _aten._to_copy, _aten.to, _aten.unsqueeze, _aten.squeeze, _aten.permute, _aten.slice,
    _aten.select, _aten.expand, _aten.clone, _aten.alias, _aten.transpose, _aten.flatten, _aten.detach,
}  # fmt: skip


def limits(inputs: Sequence[Node]) -> tuple[Limit | None, ...]:
    """The limit of each input; None for those that are anything else."""
    return tuple(strictest(_found(node)) for node in inputs)


def _found(node: Node) -> list[Limit]:
    found, seen, waiting = [], set(), [node]
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        for user in value.users:
            packet = getattr(user.target, "overloadpacket", None)
            if packet in _SAME and user.args[0] is value:
                waiting.append(user)
            else:
                found += _limit(packet, user, value)
    return found


def _limit(packet: Any, user: Node, value: Node) -> list[Limit]:
    given = user.args
    if packet is _aten.embedding and given[1] is value:
        return [_rows(_size(given[0], 0))]
    if packet is _aten.index_select and given[2] is value:
        return [_rows(_size(given[0], given[1]))]
    if packet is _aten.gather and given[2] is value:
        return [_rows(_size(given[0], given[1]))]
    if packet is _aten.nll_loss_forward and given[1] is value:
        shape = given[0].meta["val"].shape  # type: ignore[union-attr]
        classes = int(shape[1] if len(shape) > 1 else shape[0])
        ignored = given[4] if len(given) > 4 else -100
        return [Limit(0, classes, f"labels of {classes} classes", (int(ignored),))]  # type: ignore[arg-type]
    return []


def _rows(count: int) -> Limit:
    return Limit(0, count, f"indices of {count} rows")


def _size(node: Any, axis: Any) -> int:
    return int(node.meta["val"].shape[axis])
