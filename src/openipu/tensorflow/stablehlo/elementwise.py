"""Operations that treat each element by itself."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from openipu.tensorflow.stablehlo.evaluate import Frame
from openipu.tensorflow.stablehlo.parsed.graph import Op
from openipu.tensorflow.stablehlo.registry import op

_DIRECT: dict[str, Callable[..., Any]] = {
    "abs": lax.abs,
    "and": lax.bitwise_and,
    "atan2": lax.atan2,
    "cbrt": lax.cbrt,
    "ceil": lax.ceil,
    "clamp": lax.clamp,
    "complex": lax.complex,
    "cosine": lax.cos,
    "count_leading_zeros": lax.clz,
    "divide": lax.div,
    "exponential": lax.exp,
    "exponential_minus_one": lax.expm1,
    "floor": lax.floor,
    "is_finite": lax.is_finite,
    "log": lax.log,
    "log_plus_one": lax.log1p,
    "logistic": lax.logistic,
    "maximum": lax.max,
    "minimum": lax.min,
    "negate": lax.neg,
    "not": lax.bitwise_not,
    "or": lax.bitwise_or,
    "popcnt": lax.population_count,
    "remainder": lax.rem,
    "rsqrt": lax.rsqrt,
    "select": lax.select,
    "shift_left": lax.shift_left,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "shift_right_logical": lax.shift_right_logical,
    "sign": lax.sign,
    "sine": lax.sin,
    "sqrt": lax.sqrt,
    "tan": lax.tan,
    "tanh": lax.tanh,
    "xor": lax.bitwise_xor,
}


def _direct(function: Callable[..., Any]) -> Callable[..., list]:
    def evaluate(op: Op, values: list, frame: Frame) -> list:
        return [function(*values)]

    return evaluate


for _name, _function in _DIRECT.items():
    op(f"stablehlo.{_name}")(_direct(_function))

# StableHLO gives arithmetic on booleans the meaning of logic; JAX refuses it.
_ON_BOOLEANS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (lax.add, lax.bitwise_or),
    "multiply": (lax.mul, lax.bitwise_and),
    "subtract": (lax.sub, lax.bitwise_xor),
}


def _arithmetic(numbers: Callable[..., Any], booleans: Callable[..., Any]) -> Callable[..., list]:
    def evaluate(op: Op, values: list, frame: Frame) -> list:
        return [(booleans if op.type.dtype == np.bool_ else numbers)(*values)]

    return evaluate


for _name, (_numbers, _booleans) in _ON_BOOLEANS.items():
    op(f"stablehlo.{_name}")(_arithmetic(_numbers, _booleans))


@op("stablehlo.real")
def _real(op: Op, values: list, frame: Frame) -> list:
    (x,) = values
    return [lax.real(x) if jnp.iscomplexobj(x) else x]


@op("stablehlo.imag")
def _imag(op: Op, values: list, frame: Frame) -> list:
    (x,) = values
    return [lax.imag(x) if jnp.iscomplexobj(x) else lax.full_like(x, 0)]


@op("stablehlo.convert")
def _convert(op: Op, values: list, frame: Frame) -> list:
    (x,) = values
    if jnp.iscomplexobj(x) and op.type.dtype.kind != "c":
        x = lax.real(x)
    return [lax.convert_element_type(x, op.type.dtype)]


@op("stablehlo.bitcast_convert")
def _bitcast(op: Op, values: list, frame: Frame) -> list:
    (x,) = values
    if x.dtype == op.type.dtype:
        return [x]
    if x.dtype == np.bool_:
        x = lax.convert_element_type(x, np.uint8)
    if op.type.dtype == np.bool_:
        return [lax.ne(lax.bitcast_convert_type(x, np.uint8), np.uint8(0))]
    return [lax.bitcast_convert_type(x, op.type.dtype)]


@op("stablehlo.reduce_precision")
def _reduce_precision(op: Op, values: list, frame: Frame) -> list:
    return [lax.reduce_precision(values[0], op.attr("exponent_bits"), op.attr("mantissa_bits"))]


@op("stablehlo.round_nearest_afz")
def _round_away(op: Op, values: list, frame: Frame) -> list:
    return [lax.round(values[0], lax.RoundingMethod.AWAY_FROM_ZERO)]


@op("stablehlo.round_nearest_even")
def _round_even(op: Op, values: list, frame: Frame) -> list:
    return [lax.round(values[0], lax.RoundingMethod.TO_NEAREST_EVEN)]


@op("stablehlo.power")
def _power(op: Op, values: list, frame: Frame) -> list:
    x, y = values
    if op.type.dtype.kind not in "iu":
        return [lax.pow(x, y)]
    return [_integer_power(x, y)]


def _integer_power(x: Any, y: Any) -> Any:
    # By squaring, one bit of the exponent at a time; a negative exponent leaves only 1 and -1 as whole numbers.
    dtype = x.dtype
    one, zero = lax.full_like(x, 1), lax.full_like(x, 0)
    result, base = one, x
    for bit in range(8 * dtype.itemsize - (dtype.kind == "i")):
        taken = lax.ne(lax.bitwise_and(lax.shift_right_logical(y, lax.full_like(y, bit)), lax.full_like(y, 1)), zero)
        result = lax.select(taken, lax.mul(result, base), result)
        base = lax.mul(base, base)
    if dtype.kind == "u":
        return result
    odd = lax.ne(lax.bitwise_and(y, one), zero)
    alternating = lax.select(odd, lax.full_like(x, -1), one)
    negative = lax.select(lax.eq(x, one), one, lax.select(lax.eq(x, lax.full_like(x, -1)), alternating, zero))
    return lax.select(lax.lt(y, zero), negative, result)


def total_order(x: jax.Array) -> jax.Array:
    """Floats as signed integers that compare as IEEE totalOrder does; its own inverse on those integers."""
    bits = 8 * x.dtype.itemsize
    integer = np.dtype(f"int{bits}")
    whole = lax.bitcast_convert_type(x, integer) if x.dtype.kind != "i" else x
    negative = lax.shift_right_arithmetic(whole, lax.full_like(whole, bits - 1))
    return lax.bitwise_xor(whole, lax.bitwise_and(negative, lax.full_like(whole, np.iinfo(integer).max)))


@op("stablehlo.compare")
def _compare(op: Op, values: list, frame: Frame) -> list:
    a, b = values
    if op.attr("compare_type") == "TOTALORDER" and jnp.issubdtype(a.dtype, jnp.floating):
        a, b = total_order(a), total_order(b)
    functions = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}
    return [functions[op.attr("comparison_direction")](a, b)]
