"""Sorting by the comparisons that TensorFlow writes, and by any other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.stablehlo.blocks.recognise import inline
from openipu.tensorflow.stablehlo.elementwise import total_order
from openipu.tensorflow.stablehlo.evaluate import Frame
from openipu.tensorflow.stablehlo.parsed.graph import Block, Op
from openipu.tensorflow.stablehlo.registry import op

# Ranking by an unknown comparison compares all pairs.
_MOST_RANKED = 4096


@dataclass(frozen=True)
class _Key:
    operand: int
    descending: bool
    total: bool


@op("stablehlo.sort")
def _sort(op: Op, values: list, frame: Frame) -> list:
    axis = op.attr("dimension", -1) % len(values[0].shape)
    keys = _keys(op.blocks[0], frame)
    if keys is None:
        return _sort_by_rank(op, values, axis, frame.region(op.blocks[0]))
    columns = [_column(values[key.operand], key) for key in keys]
    stable = bool(op.attr("is_stable", False))
    # A column that can be turned back into its operand need not be sorted twice.
    restored = {key.operand for key, column in zip(keys, columns, strict=True) if column.exact}
    carried = [i for i in range(len(values)) if i not in restored]
    arrays = [*(column.values for column in columns), *(values[i] for i in carried)]
    done = lax.sort(tuple(arrays), dimension=axis, is_stable=stable, num_keys=len(keys))
    results: dict[int, Any] = {
        key.operand: column.restore(array)
        for key, column, array in zip(keys, columns, done[: len(keys)], strict=True)
        if column.exact
    }
    results.update(zip(carried, done[len(keys) :], strict=True))
    return [results[i] for i in range(len(values))]


@dataclass(frozen=True)
class _Column:
    """What is compared in place of an operand, and the way back."""

    values: Any
    restore: Callable[[Any], Any]
    exact: bool = True


def _column(x: Any, key: _Key) -> _Column:
    if x.dtype == np.bool_:
        flip = lax.bitwise_not if key.descending else (lambda v: v)
        return _Column(flip(x), flip)
    if jnp.issubdtype(x.dtype, np.integer):
        flip = lax.bitwise_not if key.descending else (lambda v: v)
        return _Column(flip(x), flip)
    if key.total:
        # Integers in the order of the floats: zeros of either sign and NaNs keep the places IEEE gives them.
        flip = lax.bitwise_not if key.descending else (lambda v: v)
        dtype = x.dtype
        return _Column(flip(total_order(x)), lambda v: lax.bitcast_convert_type(total_order(flip(v)), dtype))
    return _Column(lax.neg(x) if key.descending else x, lambda v: v, exact=not key.descending)


def _keys(block: Block, frame: Frame) -> list[_Key] | None:
    """The keys of a comparator that compares operands one after the other, or None if it is another kind."""
    block = inline(block, frame)
    makers = {result: op for op in block.ops for result in op.results}
    result = makers.get(block.returns[0])
    if result is None:
        return None
    positions = {value: i for i, value in enumerate(block.args)}
    if result.name == "stablehlo.compare":
        key = _key(result, positions)
        return None if key is None else [key]
    if result.name == "stablehlo.select":
        # select(a equal, compare b, compare a): first by a, then by b.
        equal, second, first = (makers.get(i) for i in result.operands)
        if equal is None or second is None or first is None:
            return None
        keys = [_key(first, positions), _key(second, positions)]
        same = _pair(equal, positions) if equal.name == "stablehlo.compare" else None
        if keys[0] is None or keys[1] is None or same is None or equal.attr("comparison_direction") != "EQ":
            return None
        return [keys[0], keys[1]] if same[0] == keys[0].operand else None
    return None


def _key(op: Op, positions: dict[int, int]) -> _Key | None:
    pair = _pair(op, positions) if op.name == "stablehlo.compare" else None
    direction = op.attr("comparison_direction")
    if pair is None or direction not in ("LT", "GT"):
        return None
    operand, swapped = pair
    return _Key(operand, (direction == "GT") != swapped, op.attr("compare_type") == "TOTALORDER")


def _pair(op: Op, positions: dict[int, int]) -> tuple[int, bool] | None:
    """Which operand's two elements are compared, and whether in swapped order."""
    a, b = (positions.get(i) for i in op.operands)
    if a is None or b is None or a // 2 != b // 2 or a == b:
        return None
    return a // 2, a > b


def _sort_by_rank(op: Op, values: list, axis: int, less: Callable[..., list]) -> list:
    length = values[0].shape[axis]
    if length > _MOST_RANKED:
        raise UnsupportedError(
            f"Expected a comparison of operands one after the other, or at most {_MOST_RANKED} elements. "
            f"Received: stablehlo.sort, from {op.scope!r}, of {length} elements by another comparison."
        )
    rows = [lax.reshape(jnp.moveaxis(value, axis, -1), (value.size // max(length, 1), length)) for value in values]

    def order(*row: jax.Array) -> jax.Array:
        def compare(i: jax.Array, j: jax.Array) -> jax.Array:
            return less(*(x for column in row for x in (column[j], column[i])))[0]

        index = jnp.arange(length)
        before = jax.vmap(lambda i: jax.vmap(lambda j: compare(i, j))(index))(index)
        # Elements that compare equal keep their order.
        tied = ~before & ~before.T & (index[None, :] < index[:, None])
        return jnp.argsort(jnp.sum(before | tied, axis=1))

    orders = jax.vmap(order)(*rows)
    moved = jnp.moveaxis(values[0], axis, -1).shape
    return [jnp.moveaxis(jnp.reshape(jnp.take_along_axis(row, orders, axis=1), moved), -1, axis) for row in rows]
