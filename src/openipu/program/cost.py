"""Counts what a jaxpr computes and moves: the cost of a layer, before anyone says on which machine."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
from jax.extend import core


@attrs.frozen
class Cost:
    """What a computation takes.

    Attributes:
      flops: floating-point operations of matrix products and convolutions, a multiply-accumulate counting as two.
      elementwise: results of elementwise operations and operands of reductions.
      bytes: sizes of all operands and results, as if every operation read and wrote memory.
      unknown_loops: loops whose number of iterations the jaxpr does not say; their bodies are counted once.
    """

    flops: float = 0.0
    elementwise: float = 0.0
    bytes: float = 0.0
    unknown_loops: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.flops + other.flops,
            self.elementwise + other.elementwise,
            self.bytes + other.bytes,
            self.unknown_loops + other.unknown_loops,
        )

    def times(self, count: int) -> "Cost":
        """The cost of doing it `count` times; the loops in it stay as many as they are."""
        return Cost(self.flops * count, self.elementwise * count, self.bytes * count, self.unknown_loops)


def count(jaxpr: Any) -> Cost:
    """The cost of one evaluation of a jaxpr, open or closed."""
    total = Cost()
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        total += _equation(equation)
    return total


# Moving and renaming data is not arithmetic; what it moves is still counted in bytes.
_MOVES = frozenset({
    "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "copy_p", "dynamic_slice",
    "dynamic_update_slice", "gather", "iota", "pad", "reshape", "rev", "select_n", "slice", "split", "squeeze",
    "stop_gradient", "transpose",
})  # fmt: skip
# On the IPU, as under XLA, these are new names for the same memory.
_FREE = frozenset({"reshape", "squeeze", "stop_gradient", "broadcast_in_dim"})


def _equation(equation: Any) -> Cost:
    name = equation.primitive.name
    if name in _INNER:
        return _INNER[name](equation)
    inner = list(_jaxprs(equation.params))
    if inner and not name.startswith(("reduce", "scatter", "sort", "select_and")):
        # Calls of any kind (pjit, custom_vjp_call, remat, shard_map, ...) cost what they call.
        return sum((count(jaxpr) for jaxpr in inner), Cost())
    if name == "dot_general":
        return Cost(flops=_dot(equation), bytes=_traffic(equation))
    if name == "conv_general_dilated":
        return Cost(flops=_convolution(equation), bytes=_traffic(equation))
    if name in _FREE:
        return Cost()
    if name in _MOVES:
        return Cost(bytes=_traffic(equation))
    operands = [v for v in equation.invars if not isinstance(v, core.Literal)]
    # A reduction or a window touches each operand; an elementwise operation makes each result.
    size = max((_size(v) for v in (*operands, *equation.outvars)), default=0)
    return Cost(elementwise=size, bytes=_traffic(equation))


def _scan(equation: Any) -> Cost:
    return count(equation.params["jaxpr"]).times(equation.params["length"])


def _while(equation: Any) -> Cost:
    once = count(equation.params["body_jaxpr"]) + count(equation.params["cond_jaxpr"])
    return attrs.evolve(once, unknown_loops=once.unknown_loops + 1)


def _cond(equation: Any) -> Cost:
    branches = [count(branch) for branch in equation.params["branches"]]
    return max(branches, key=lambda cost: (cost.flops, cost.elementwise, cost.bytes))


_INNER: dict[str, Callable[[Any], Cost]] = {"scan": _scan, "while": _while, "cond": _cond}


def _dot(equation: Any) -> float:
    (contracting, _), _ = equation.params["dimension_numbers"]
    shape = equation.invars[0].aval.shape
    return 2.0 * _size(equation.outvars[0]) * math.prod(shape[d] for d in contracting)


def _convolution(equation: Any) -> float:
    spec = equation.params["dimension_numbers"].rhs_spec
    kernel = equation.invars[1].aval.shape
    # Every result is a sum over the window and the input channels of its group, which is what the kernel holds.
    products = math.prod(kernel[d] for d in spec[1:])
    return 2.0 * _size(equation.outvars[0]) * products / equation.params["batch_group_count"]


def _jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, (core.Jaxpr, core.ClosedJaxpr)):
                yield item


def _size(variable: Any) -> int:
    return math.prod(getattr(variable.aval, "shape", ()))


def _traffic(equation: Any) -> float:
    variables = [*equation.invars, *equation.outvars]
    return float(sum(_size(v) * _itemsize(v.aval) for v in variables))


def _itemsize(aval: Any) -> int:
    try:
        return np.dtype(aval.dtype).itemsize
    except TypeError:
        # Random keys have a dtype of JAX's own.
        return 8
