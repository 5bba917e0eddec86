"""Arithmetic, comparison, logic and mathematical functions, element by element."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from openipu.torch.aten.dtypes import Scalar, float_value, is_bool, is_float, promote, to_jax
from openipu.torch.aten.registry import op
from openipu.torch.aten.subgradients import absolute

aten = torch.ops.aten

# Functions of one operand whose results are floating point.
_FLOAT_FUNCTIONS: dict[Any, Callable[[jax.Array], jax.Array]] = {
    aten.acos: jnp.arccos,
    aten.acosh: jnp.arccosh,
    aten.asin: jnp.arcsin,
    aten.asinh: jnp.arcsinh,
    aten.atan: jnp.arctan,
    aten.atanh: jnp.arctanh,
    aten.cos: jnp.cos,
    aten.cosh: jnp.cosh,
    aten.digamma: jax.scipy.special.digamma,
    aten.erf: lax.erf,
    aten.erfc: lax.erfc,
    aten.erfinv: lax.erf_inv,
    aten.exp: jnp.exp,
    aten.exp2: jnp.exp2,
    aten.expm1: jnp.expm1,
    aten.lgamma: lax.lgamma,
    aten.log: jnp.log,
    aten.log10: jnp.log10,
    aten.log1p: jnp.log1p,
    aten.log2: jnp.log2,
    aten.reciprocal: lambda x: 1 / x,
    aten.rsqrt: lax.rsqrt,
    aten.sin: jnp.sin,
    aten.sinh: jnp.sinh,
    aten.sqrt: jnp.sqrt,
    aten.special_i0e: jax.scipy.special.i0e,
    aten.special_i1e: jax.scipy.special.i1e,
    aten.i0: jax.scipy.special.i0,
    aten.special_i1: jax.scipy.special.i1,
    aten.special_ndtri: jax.scipy.special.ndtri,
    aten.tan: jnp.tan,
    aten.tanh: jnp.tanh,
}

# Functions of one operand that keep its dtype, or give booleans.
_FUNCTIONS: dict[Any, Callable[[jax.Array], jax.Array]] = {
    aten.abs: absolute,
    aten.bitwise_not: jnp.invert,
    aten.isinf: jnp.isinf,
    aten.isnan: jnp.isnan,
    aten.logical_not: jnp.logical_not,
    aten.neg: jnp.negative,
    aten.sign: jnp.sign,
    aten.sgn: jnp.sign,
    aten.signbit: jnp.signbit,
    aten.square: jnp.square,
}

_ROUNDINGS: dict[Any, Callable[[jax.Array], jax.Array]] = {
    aten.ceil: jnp.ceil,
    aten.floor: jnp.floor,
    aten.round.default: jnp.round,
    aten.trunc: jnp.trunc,
}

_COMPARISONS: dict[Any, Callable[[jax.Array, jax.Array], jax.Array]] = {
    aten.eq: jnp.equal,
    aten.ge: jnp.greater_equal,
    aten.gt: jnp.greater,
    aten.le: jnp.less_equal,
    aten.lt: jnp.less,
    aten.ne: jnp.not_equal,
    aten.bitwise_and: jnp.bitwise_and,
    aten.bitwise_or: jnp.bitwise_or,
    aten.bitwise_xor: jnp.bitwise_xor,
    aten.bitwise_left_shift: jnp.left_shift,
    aten.bitwise_right_shift: jnp.right_shift,
    aten.logical_and: jnp.logical_and,
    aten.logical_or: jnp.logical_or,
    aten.logical_xor: jnp.logical_xor,
    aten.fmod: lambda a, b: lax.rem(*jnp.broadcast_arrays(a, b)),
    aten.remainder: jnp.remainder,
    aten.maximum: jnp.maximum,
    aten.minimum: jnp.minimum,
    aten.max.other: jnp.maximum,
    aten.min.other: jnp.minimum,
    aten.gcd: jnp.gcd,
    aten.lcm: jnp.lcm,
}

_FLOAT_BINARY: dict[Any, Callable[[jax.Array, jax.Array], jax.Array]] = {
    aten.atan2: jnp.arctan2,
    aten.copysign: jnp.copysign,
    aten.logaddexp: jnp.logaddexp,
    aten.logaddexp2: jnp.logaddexp2,
    aten.nextafter: jnp.nextafter,
}


def _on_floats(function: Callable) -> Callable:
    return lambda x: function(float_value(x))


def _on_roundable(function: Callable) -> Callable:
    return lambda x: function(x) if is_float(x) else x


def _on_promoted(function: Callable, floating: bool = False) -> Callable:
    return lambda a, b: function(*promote(a, b, floating=floating))


for _target, _function in _FLOAT_FUNCTIONS.items():
    op(_target)(_on_floats(_function))
for _target, _function in _FUNCTIONS.items():
    op(_target)(_function)
for _target, _function in _ROUNDINGS.items():
    op(_target)(_on_roundable(_function))
for _target, _function in _COMPARISONS.items():
    op(_target)(_on_promoted(_function))
for _target, _function in _FLOAT_BINARY.items():
    op(_target)(_on_promoted(_function, floating=True))


@op(aten.add)
def add(a: Any, b: Any, alpha: Scalar = 1) -> jax.Array:
    """a + alpha * b."""
    a, b = promote(a, b)
    if is_bool(a):
        return jnp.logical_or(a, b)
    return a + (b if alpha == 1 else b * jnp.asarray(alpha, b.dtype))


@op(aten.sub)
def sub(a: Any, b: Any, alpha: Scalar = 1) -> jax.Array:
    """a - alpha * b."""
    a, b = promote(a, b)
    return a - (b if alpha == 1 else b * jnp.asarray(alpha, b.dtype))


@op(aten.rsub)
def _rsub(a: Any, b: Any, alpha: Scalar = 1) -> jax.Array:
    return sub(b, a, alpha)


@op(aten.mul)
def _mul(a: Any, b: Any) -> jax.Array:
    a, b = promote(a, b)
    return jnp.logical_and(a, b) if is_bool(a) else a * b


@op(aten.div)
def _div(a: Any, b: Any, rounding_mode: str | None = None) -> jax.Array:
    if rounding_mode is None:
        a, b = promote(a, b, floating=True)
        return a / b
    a, b = promote(a, b)
    if rounding_mode == "floor":
        return jnp.floor_divide(a, b)
    return jnp.trunc(a / b) if is_float(a) else lax.div(*jnp.broadcast_arrays(a, b))


@op(aten.floor_divide)
def _floor_divide(a: Any, b: Any) -> jax.Array:
    return jnp.floor_divide(*promote(a, b))


@op(aten.pow)
def _pow(base: Any, exponent: Any) -> jax.Array:
    if isinstance(exponent, bool | int | float):
        return _pow_scalar(base, exponent)
    base, exponent = promote(base, exponent)
    if not is_float(base):
        return jnp.power(base, jnp.maximum(exponent, 0)) if not is_bool(base) else base | ~exponent
    base, exponent = jnp.broadcast_arrays(base, exponent)
    # As torch: no gradient for the base where the exponent is 0, none for the exponent where 0 ** positive.
    flat = jnp.where(exponent == 0, jnp.ones_like(base), base)
    zero = (flat == 0) & (exponent >= 0)
    held = jnp.where(zero, lax.stop_gradient(exponent), exponent)
    return jnp.power(flat, held)


def _pow_scalar(base: jax.Array, exponent: Scalar) -> jax.Array:
    if is_float(base):
        if exponent == 0.5:
            return jnp.sqrt(base)
        if exponent == int(exponent) and abs(exponent) <= 16 if math.isfinite(exponent) else False:
            return lax.integer_pow(base, int(exponent))
        return jnp.power(base, jnp.asarray(exponent, base.dtype))
    base, power = promote(base, exponent)
    if is_float(base):
        return _pow_scalar(base, exponent)
    return lax.integer_pow(base, int(exponent)) if exponent >= 0 else jnp.power(base * 1.0, power).astype(base.dtype)


@op(aten.clamp)
def clamp(x: jax.Array, low: Any = None, high: Any = None) -> jax.Array:
    """x held between two bounds; at the bounds themselves the gradient is x's."""
    given = [value for value in (x, low, high) if value is not None]
    arrays = iter(promote(*given))
    x = next(arrays)
    if low is not None:
        bound = next(arrays)
        x = jnp.where(x < bound, bound, x)
    if high is not None:
        bound = next(arrays)
        x = jnp.where(x > bound, bound, x)
    return x


@op(aten.clamp_min)
def _clamp_min(x: jax.Array, low: Any) -> jax.Array:
    return clamp(x, low, None)


@op(aten.clamp_max)
def _clamp_max(x: jax.Array, high: Any) -> jax.Array:
    return clamp(x, None, high)


@op(aten.fmax)
def _fmax(a: jax.Array, b: jax.Array) -> jax.Array:
    a, b = promote(a, b)
    return jnp.where((a >= b) | jnp.isnan(b), a, b)


@op(aten.fmin)
def _fmin(a: jax.Array, b: jax.Array) -> jax.Array:
    a, b = promote(a, b)
    return jnp.where((a <= b) | jnp.isnan(b), a, b)


@op(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def where(condition: jax.Array, a: Any, b: Any) -> jax.Array:
    """a where the condition holds, b elsewhere."""
    return jnp.where(condition != 0, *promote(a, b))


@op(aten.masked_fill)
def _masked_fill(x: jax.Array, mask: jax.Array, value: Any) -> jax.Array:
    return jnp.where(mask, jnp.asarray(value, x.dtype), x)


@op(aten.addcmul)
def _addcmul(x: jax.Array, a: jax.Array, b: jax.Array, value: Scalar = 1) -> jax.Array:
    x, a, b = promote(x, a, b)
    return x + jnp.asarray(value, x.dtype) * a * b


@op(aten.addcdiv)
def _addcdiv(x: jax.Array, a: jax.Array, b: jax.Array, value: Scalar = 1) -> jax.Array:
    x, a, b = promote(x, a, b, floating=True)
    return x + jnp.asarray(value, x.dtype) * (a / b)


@op(aten.frac)
def _frac(x: jax.Array) -> jax.Array:
    return x - lax.stop_gradient(jnp.trunc(x))


@op(aten.round.decimals)
def _round_decimals(x: jax.Array, decimals: int) -> jax.Array:
    return jnp.round(x, decimals) if is_float(x) else x


@op(aten.angle)
def _angle(x: jax.Array) -> jax.Array:
    x = float_value(x)
    return lax.stop_gradient(jnp.where(jnp.isnan(x), x, jnp.where(x < 0, jnp.asarray(math.pi, x.dtype), 0)))


@op(aten.hypot)
def _hypot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.hypot(*promote(a, b, floating=True))


@op(aten._to_copy, aten.to)
def _to_copy(x: jax.Array, *_: Any, dtype: torch.dtype | None = None, **__: Any) -> jax.Array:
    if dtype is None:
        return x
    if is_float(x) and not dtype.is_floating_point and dtype != torch.bool:
        # Through int64, so that what does not fit wraps as in C instead of saturating.
        return jnp.trunc(x).astype(to_jax(torch.int64)).astype(to_jax(dtype))
    return x.astype(to_jax(dtype))


@op(aten.clone, aten.alias, aten.detach, aten.lift_fresh_copy, aten.positive, aten.contiguous)
def _same(x: jax.Array, **_: Any) -> jax.Array:
    return x


@op(aten._conj, aten.conj_physical, aten.real)
def _real(x: jax.Array) -> jax.Array:
    return x


@op(aten.copy)
def _copy(destination: jax.Array, source: jax.Array, non_blocking: bool = False) -> jax.Array:
    return jnp.broadcast_to(source.astype(destination.dtype), destination.shape)


@op(aten._assert_tensor_metadata, aten._assert_async, aten._assert_scalar, aten.sym_constrain_range_for_size)
def _assertion(*_: Any, **__: Any) -> None:
    return None
