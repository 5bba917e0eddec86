"""Activation functions, with torch's choice of gradient at their corners."""

import jax
import jax.numpy as jnp
import torch
from jax import lax

from openipu.torch.aten.dtypes import Scalar, is_float, promote, wide
from openipu.torch.aten.registry import op
from openipu.torch.aten.subgradients import relu

aten = torch.ops.aten


@op(aten.relu)
def _relu(x: jax.Array) -> jax.Array:
    return relu(x) if is_float(x) else jnp.maximum(x, 0)


@op(aten.relu6)
def _relu6(x: jax.Array) -> jax.Array:
    return hardtanh(x, 0, 6)


@op(aten.hardtanh)
def hardtanh(x: jax.Array, low: Scalar = -1, high: Scalar = 1) -> jax.Array:
    """x held between two bounds; unlike clamp, without gradient at the bounds."""
    low_value, high_value = jnp.asarray(low, x.dtype), jnp.asarray(high, x.dtype)
    return jnp.where(x <= low_value, low_value, jnp.where(x >= high_value, high_value, x))


@op(aten.leaky_relu)
def _leaky_relu(x: jax.Array, slope: Scalar = 0.01) -> jax.Array:
    return jnp.where(x > 0, x, x * jnp.asarray(slope, x.dtype))


@op(aten._prelu_kernel)
def _prelu(x: jax.Array, weight: jax.Array) -> jax.Array:
    return jnp.where(x > 0, x, x * weight)


@op(aten.threshold)
def _threshold(x: jax.Array, threshold: Scalar, value: Scalar) -> jax.Array:
    return jnp.where(x <= jnp.asarray(threshold, x.dtype), jnp.asarray(value, x.dtype), x)


@op(aten.elu)
def _elu(x: jax.Array, alpha: Scalar = 1, scale: Scalar = 1, input_scale: Scalar = 1) -> jax.Array:
    x = wide(x)
    # The exponential of a large positive value would make the gradient NaN.
    negative = jnp.where(x > 0, jnp.zeros_like(x), x)
    return jnp.where(x > 0, x * scale, jnp.expm1(negative * input_scale) * (alpha * scale))


@op(aten.gelu)
def _gelu(x: jax.Array, approximate: str = "none") -> jax.Array:
    x = wide(x)
    if approximate == "tanh":
        return jax.nn.gelu(x, approximate=True)
    return x * (0.5 * (1 + lax.erf(x * 0.7071067811865476)))


@op(aten.sigmoid)
def _sigmoid(x: jax.Array) -> jax.Array:
    return lax.logistic(wide(x))


@op(aten.silu)
def _silu(x: jax.Array) -> jax.Array:
    x = wide(x)
    return x * lax.logistic(x)


@op(aten.mish)
def _mish(x: jax.Array) -> jax.Array:
    x = wide(x)
    return x * jnp.tanh(jax.nn.softplus(x))


@op(aten.softplus)
def _softplus(x: jax.Array, beta: Scalar = 1, threshold: Scalar = 20) -> jax.Array:
    x = wide(x)
    scaled = x * beta
    return jnp.where(scaled > threshold, x, jnp.log1p(jnp.exp(jnp.minimum(scaled, threshold))) / beta)


@op(aten.log_sigmoid_forward)
def _log_sigmoid(x: jax.Array) -> tuple[jax.Array, None]:
    # The second result only serves torch's own backward pass.
    return -jax.nn.softplus(-wide(x)), None


@op(aten.hardshrink)
def _hardshrink(x: jax.Array, bound: Scalar = 0.5) -> jax.Array:
    return jnp.where((x >= -bound) & (x <= bound), jnp.zeros_like(x), x)


@op(aten.softshrink)
def _softshrink(x: jax.Array, bound: Scalar = 0.5) -> jax.Array:
    step = jnp.asarray(bound, x.dtype)
    return jnp.where(x > step, x - step, jnp.where(x < -step, x + step, x * 0))


@op(aten.hardsigmoid)
def _hardsigmoid(x: jax.Array) -> jax.Array:
    return hardtanh(wide(x) + 3, 0, 6) / 6


@op(aten.hardswish)
def _hardswish(x: jax.Array) -> jax.Array:
    x = wide(x)
    inner = jnp.where(x < 3, x * (x + 3) / 6, x)
    return jnp.where(x <= -3, jnp.zeros_like(x), inner)


@op(aten._softmax)
def _softmax(x: jax.Array, dim: int, half_to_float: bool = False) -> jax.Array:
    return softmax(wide(x), dim)


def softmax(x: jax.Array, dim: int) -> jax.Array:
    """Softmax along one dimension."""
    return jax.nn.softmax(x, axis=dim) if x.ndim else jnp.ones_like(x)


@op(aten._safe_softmax)
def _safe_softmax(x: jax.Array, dim: int, dtype: torch.dtype | None = None) -> jax.Array:
    return safe_softmax(wide(x), dim)


def safe_softmax(x: jax.Array, dim: int) -> jax.Array:
    """Softmax that is zero where every entry is masked with -inf."""
    masked = jnp.all(x == -jnp.inf, axis=dim, keepdims=True)
    result = jax.nn.softmax(jnp.where(masked, jnp.zeros_like(x), x), axis=dim)
    return jnp.where(masked, jnp.zeros_like(x), result)


@op(aten._log_softmax)
def _log_softmax(x: jax.Array, dim: int, half_to_float: bool = False) -> jax.Array:
    x = wide(x)
    return jax.nn.log_softmax(x, axis=dim) if x.ndim else jnp.zeros_like(x)


@op(aten.glu)
def _glu(x: jax.Array, dim: int = -1) -> jax.Array:
    a, b = jnp.split(wide(x), 2, axis=dim)
    return a * lax.logistic(b)


@op(aten.xlogy)
def _xlogy(a: jax.Array, b: jax.Array) -> jax.Array:
    a, b = promote(a, b, floating=True)
    safe = jnp.where(a == 0, jnp.ones_like(b), b)
    return jnp.where(jnp.isnan(b), b, a * jnp.log(safe))
