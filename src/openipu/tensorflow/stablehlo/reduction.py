"""Reductions over whole dimensions."""

from collections.abc import Callable
from typing import Any

from jax import lax

from openipu.tensorflow.stablehlo.blocks.recognise import combiner, is_identity
from openipu.tensorflow.stablehlo.evaluate import Frame
from openipu.tensorflow.stablehlo.parsed.graph import Op
from openipu.tensorflow.stablehlo.registry import op

# Named reductions keep the program readable to the compiler passes.
_REDUCERS: dict[str, Callable[..., Any]] = {
    "add": lax.reduce_sum,
    "mul": lax.reduce_prod,
    "max": lax.reduce_max,
    "min": lax.reduce_min,
    "and": lax.reduce_and,
    "or": lax.reduce_or,
    "xor": lax.reduce_xor,
}

COMBINERS: dict[str, Callable[..., Any]] = {
    "add": lax.add,
    "mul": lax.mul,
    "max": lax.max,
    "min": lax.min,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
}


@op("stablehlo.reduce")
def _reduce(op: Op, values: list, frame: Frame) -> list:
    half = len(values) // 2
    operands, inits = values[:half], values[half:]
    axes = op.attr("dimensions")
    name = combiner(op.blocks[0], frame) if half == 1 else None
    if name is not None:
        result = _REDUCERS[name](operands[0], axes) if axes else operands[0]
        if is_identity(name, inits[0]):
            return [result]
        return [COMBINERS[name](result, lax.broadcast_in_dim(inits[0], result.shape, ()))]
    return list(lax.reduce(tuple(operands), tuple(inits), pairwise(op, frame), axes))


def pairwise(op: Op, frame: Frame) -> Callable[..., Any]:
    """The block of a reduction as JAX wants it: a function of two tuples."""
    region = frame.region(op.blocks[0])

    def computation(a: tuple, b: tuple) -> tuple:
        return tuple(region(*a, *b))

    return computation
