"""Calls, branches, loops and the other operations that evaluate blocks."""

from typing import Any

import jax
import numpy as np
from jax import lax

from openipu.tensorflow.stablehlo.blocks.trip_count import trip_count
from openipu.tensorflow.stablehlo.evaluate import Frame, Held
from openipu.tensorflow.stablehlo.parsed.graph import Op
from openipu.tensorflow.stablehlo.registry import op, refuse

refuse(
    "collectives between replicas are written with the ipu cross-replica operations",
    *(
        f"stablehlo.{name}"
        for name in (
            "all_gather",
            "all_reduce",
            "all_to_all",
            "collective_broadcast",
            "collective_permute",
            "cross-replica-sum",
            "partition_id",
            "reduce_scatter",
            "replica_id",
        )
    ),
)
refuse(
    "data enters and leaves a program through its feeds",
    *(f"stablehlo.{name}" for name in ("infeed", "outfeed", "recv", "send")),
)


@op("func.call")
def _call(op: Op, values: list, frame: Frame) -> list:
    return frame.call(op.attr("callee"), values, op.number)


@op("stablehlo.composite")
def _composite(op: Op, values: list, frame: Frame) -> list:
    return frame.call(op.attr("decomposition"), values, op.number)


@op("stablehlo.after_all", "stablehlo.create_token")
def _token(op: Op, values: list, frame: Frame) -> list:
    return [None]


@op("mhlo.add_dependency")
def _add_dependency(op: Op, values: list, frame: Frame) -> list:
    return [values[0]]


@op("stablehlo.optimization_barrier")
def _optimization_barrier(op: Op, values: list, frame: Frame) -> list:
    return list(lax.optimization_barrier(tuple(values)))


@op("stablehlo.if")
def _if(op: Op, values: list, frame: Frame) -> list:
    (predicate,) = values
    then, otherwise = (_closed(frame, block) for block in op.blocks)
    return _kept(frame, lax.cond(predicate, then, otherwise, _held(frame, op)))


@op("stablehlo.case")
def _case(op: Op, values: list, frame: Frame) -> list:
    (index,) = values
    last = len(op.blocks) - 1
    # Any index without a branch of its own takes the last one; JAX would clamp.
    inside = lax.bitwise_and(lax.ge(index, np.int32(0)), lax.le(index, np.int32(last)))
    branches = [_closed(frame, block) for block in op.blocks]
    return _kept(frame, lax.switch(lax.select(inside, index, np.int32(last)), branches, _held(frame, op)))


def _closed(frame: Frame, block: Any) -> Any:
    region = frame.region(block)

    def branch(held: Held) -> tuple[tuple, Held]:
        held = dict(held)
        return tuple(jax.numpy.asarray(value) for value in region(held=held)), held

    return branch


def _held(frame: Frame, op: Op) -> Held:
    """What the custom calls in an operation's blocks hold."""
    return {name: frame.held[name] for name in sorted(op.holds) if name in frame.held}


def _kept(frame: Frame, results: tuple[tuple, Held]) -> list:
    values, held = results
    frame.held.update(held)
    return list(values)


@op("stablehlo.while")
def _while(op: Op, values: list, frame: Frame) -> list:
    proceed, body = op.blocks
    condition, step = frame.region(proceed), frame.region(body)
    key = frame.fold_key(op.number) if op.needs_key else None
    start = (tuple(jax.numpy.asarray(value) for value in values), _held(frame, op))

    def advance(i: Any, state: tuple[tuple, Held]) -> tuple[tuple, Held]:
        # The iteration is part of the key, so that each one draws its own numbers.
        inner = None if key is None else jax.random.fold_in(key, i)
        values, held = state[0], dict(state[1])
        return tuple(jax.numpy.asarray(value) for value in step(*values, key=inner, held=held)), held

    known = trip_count(op, values, frame)
    if known is not None:
        # A known number of iterations lets the model of the IPU count them.
        count, last = known
        results = _kept(frame, lax.fori_loop(np.int32(0), np.int32(count), advance, start))
        return [last.get(i, result) for i, result in enumerate(results)]
    if key is None:
        return _kept(frame, lax.while_loop(lambda s: condition(*s[0])[0], lambda s: advance(0, s), start))

    def again(counted: tuple) -> Any:
        i, state = counted
        return condition(*state[0], key=jax.random.fold_in(key, i))[0]

    _, result = lax.while_loop(again, lambda c: (c[0] + np.uint32(1), advance(*c)), (np.uint32(0), start))
    return _kept(frame, result)


@op("stablehlo.map")
def _map(op: Op, values: list, frame: Frame) -> list:
    region = frame.region(op.blocks[0])
    shape = op.type.shape
    flat = [lax.reshape(value, (value.size,)) for value in values]
    results = jax.vmap(lambda *scalars: tuple(region(*scalars)))(*flat)
    return [lax.reshape(result, shape) for result in results]
