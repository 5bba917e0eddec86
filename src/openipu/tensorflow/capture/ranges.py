"""Which inputs of a traced function are labels or indices, and of how many things: read from its graph."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from openipu.program import Limit, strictest
from openipu.tensorflow.boundary import called_graph

# What changes neither the numbers nor their number for worse: where an input goes through these, it is still itself.
_SAME = {"Identity", "Cast", "Reshape", "ExpandDims", "Squeeze", "StridedSlice", "Transpose", "StopGradient"}
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}


def limits(inputs: Sequence[tf.Tensor], variables: Sequence[tf.Variable | None]) -> tuple[Limit | None, ...]:
    """The limit of each of the function's own inputs; None for those that are anything else.

    Args:
      inputs: of the traced function: its own, then what it closed over.
      variables: those among the latter, None where a constant stands.
    """
    own = len(inputs) - len(variables)
    rows = {_key(t): v.shape[0] for t, v in zip(inputs[own:], variables, strict=True) if v is not None and v.shape.rank}
    return tuple(strictest(_found(tensor, rows)) for tensor in inputs[:own])


def _key(tensor: tf.Tensor) -> tuple[int, str]:
    """What tells a tensor apart from those of other graphs."""
    return id(tensor.graph), tensor.name


def _found(tensor: tf.Tensor, rows: dict[tuple[int, str], int | None]) -> list[Limit]:
    found, seen = [], set()
    # Whether numbers below zero count from the end.
    waiting = [(tensor, False)]
    while waiting:
        value, wraps = waiting.pop()
        if (_key(value), wraps) in seen:
            continue
        seen.add((_key(value), wraps))
        for user in value.consumers():
            position = next(i for i, given in enumerate(user.inputs) if given is value)
            if user.type in _SAME and position == 0:
                waiting.append((user.outputs[0], wraps))
            elif user.type == "SelectV2" and _counts_from_the_end(user, value):
                waiting.append((user.outputs[0], True))
            elif user.type in _CALLS and (inner := called_graph(user)) is not None:
                pairs = zip(inner.inputs, user.inputs, strict=True)
                rows = rows | {_key(mine): rows[_key(outer)] for mine, outer in pairs if _key(outer) in rows}
                waiting.append((inner.inputs[position], wraps))
            else:
                found += _limit(user, position, wraps, rows)
    return found


def _counts_from_the_end(select: Any, value: tf.Tensor) -> bool:
    """Whether an operation is `where(value < 0, value + size, value)`."""
    condition, shifted, plain = select.inputs
    return (
        plain is value
        and condition.op.type == "Less"
        and condition.op.inputs[0] is value
        and shifted.op.type == "AddV2"
        and shifted.op.inputs[0] is value
    )


def _limit(user: Any, position: int, wraps: bool, rows: dict[tuple[int, str], int | None]) -> list[Limit]:
    if position != 1:
        return []
    if user.type == "ResourceGather":
        count = rows.get(_key(user.inputs[0]))
    elif user.type == "GatherV2":
        count = _size(user)
    elif user.type == "SparseSoftmaxCrossEntropyWithLogits" and not wraps:
        classes = user.inputs[0].shape[-1]
        return [] if classes is None else [Limit(0, classes, f"labels of {classes} classes")]
    else:
        return []
    return [] if count is None else [Limit(-count if wraps else 0, count, f"indices of {count} rows")]


def _size(gather: Any) -> int | None:
    """How many slices an operation chooses from."""
    source, axis = gather.inputs[0], tf.get_static_value(gather.inputs[2])
    if axis is None or source.shape.rank is None or gather.get_attr("batch_dims"):
        return None
    return source.shape[int(axis)]
