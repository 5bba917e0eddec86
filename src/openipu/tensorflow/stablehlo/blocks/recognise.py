"""Recognition of the small computations that reductions, scatters and sorts carry in their blocks."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from openipu.tensorflow.stablehlo.evaluate import Frame
from openipu.tensorflow.stablehlo.parsed.graph import Block, Op

_COMBINERS = {
    "stablehlo.add": "add",
    "stablehlo.maximum": "max",
    "stablehlo.minimum": "min",
    "stablehlo.multiply": "mul",
    "stablehlo.and": "and",
    "stablehlo.or": "or",
    "stablehlo.xor": "xor",
}


def inline(block: Block, frame: Frame) -> Block:
    """The block itself, or the function it only passes its arguments to."""
    while len(block.ops) == 1 and block.ops[0].name == "func.call":
        (call,) = block.ops
        if call.operands != block.args or call.results != block.returns:
            break
        block = frame.program.functions[call.attr("callee")]
    return block


def only_op(block: Block, frame: Frame) -> tuple[Op, Block] | None:
    """The one operation that makes a block's one result, with the block it is in, or None."""
    block = inline(block, frame)
    if len(block.ops) != 1 or len(block.returns) != 1 or block.ops[0].results != block.returns:
        return None
    return block.ops[0], block


def combiner(block: Block, frame: Frame) -> str | None:
    """The name of the commutative operation that joins a block's two arguments, or None."""
    found = only_op(block, frame)
    if found is None:
        return None
    op, inner = found
    if len(inner.args) != 2 or set(op.operands) != set(inner.args):
        return None
    name = _COMBINERS.get(op.name)
    if op.type.dtype == np.bool_:
        # On booleans arithmetic means logic.
        return {"add": "or", "max": "or", "mul": "and", "min": "and"}.get(name or "", name)
    return name


def comparison(block: Block, frame: Frame) -> tuple[str, bool] | None:
    """The direction of a block that compares its two arguments in order, and whether it is a total order."""
    found = only_op(block, frame)
    if found is None:
        return None
    op, inner = found
    if op.name != "stablehlo.compare" or op.operands != inner.args:
        return None
    return op.attr("comparison_direction"), op.attr("compare_type") == "TOTALORDER"


def is_identity(name: str, value: Any) -> bool:
    """Whether a known initial value leaves the result of the combiner `name` as it is."""
    if type(value) is not np.ndarray or value.shape != ():
        return False
    dtype = value.dtype
    if dtype == np.bool_:
        return bool(value) == (name == "and")
    if name in ("add", "or", "xor"):
        return bool(value == 0)
    if name == "mul":
        return bool(value == 1)
    if jnp.issubdtype(dtype, np.integer):
        info = jnp.iinfo(dtype)
        identity = {"max": info.min, "min": info.max, "and": -1 if dtype.kind == "i" else info.max}[name]
        return int(value) == int(identity)
    if jnp.issubdtype(dtype, np.floating):
        return bool(value == (-np.inf if name == "max" else np.inf))
    return False
