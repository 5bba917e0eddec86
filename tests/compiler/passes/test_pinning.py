"""Gradients of maxima reach the values that were greatest, wherever XLA computes these again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import jaxpr_as_fun

from openipu.compiler.passes import optimise

from .checking import primitives

RNG = np.random.default_rng(0)


def _normalised(x, weight, bias):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * weight + bias


PICKED = {
    "max": lambda h: h.max(1),
    "min": lambda h: h.min(1),
    "max of relu": lambda h: jax.nn.relu(h).max(1),
    "maximum": lambda h: jnp.maximum(h[:, 0], h[:, 1]),
    "cummax": lambda h: lax.cummax(h, 1)[:, -1],
    "max in float16": lambda h: h.astype(jnp.float16).max(1).astype(jnp.float32),
}


@pytest.mark.parametrize("name", PICKED)
def test_the_gradient_of_what_was_picked_is_not_lost(name):
    def loss(weight, bias, x):
        return (PICKED[name](_normalised(x, weight, bias)) ** 2).sum()

    arguments = [np.full(3, 1.1, np.float32), np.full(3, 0.3, np.float32), RNG.standard_normal((7, 4, 3), np.float32)]
    gradients = jax.grad(loss, (0, 1))
    compiled = jax.jit(jaxpr_as_fun(optimise(jax.make_jaxpr(gradients)(*arguments))))
    # Operation by operation, every value is computed once.
    with jax.disable_jit():
        expected = gradients(*arguments)
    for one, other in zip(expected, compiled(*arguments), strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-2 if "16" in name else 1e-4)


def test_two_values_of_one_shape_are_not_confused():
    def loss(weight, bias, x):
        first = _normalised(x, weight, bias)
        second = _normalised(jnp.cos(x), weight + 1, bias - 1)
        return (first.max(1) ** 2).sum() + (second.min(1) ** 2).sum() + (first * second).sum()

    arguments = [np.full(3, 1.1, np.float32), np.full(3, 0.3, np.float32), RNG.standard_normal((7, 4, 3), np.float32)]
    gradients = jax.grad(loss, (0, 1))
    compiled = jax.jit(jaxpr_as_fun(optimise(jax.make_jaxpr(gradients)(*arguments))))
    with jax.disable_jit():
        expected = gradients(*arguments)
    for one, other in zip(expected, compiled(*arguments), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4)


def test_equal_values_share_the_gradient():
    x = np.repeat(RNG.standard_normal((5, 1, 3), np.float32), 4, axis=1)

    def loss(bias):
        return (_normalised(x, np.float32(1.1), bias).max(1) ** 2).sum()

    gradient = jax.jit(jaxpr_as_fun(optimise(jax.make_jaxpr(jax.grad(loss))(np.zeros((4, 3), np.float32)))))
    (found,) = gradient(np.zeros((4, 3), np.float32))
    np.testing.assert_allclose(found, np.broadcast_to(found[0], found.shape), rtol=1e-6)
    assert np.abs(found).min() > 1e-3


@pytest.mark.parametrize("picked", [
    lambda x, w: jax.grad(lambda w: (x @ w + 1).max(0).sum())(w),
    lambda x, w: jax.grad(lambda w: jnp.tanh(x @ w * 2 + 1).max(0).sum())(w),
    lambda x, w: (x @ w * 2 + 1 == 0).sum(),
], ids=["a sum of what is kept", "what is dear", "no maximum"])  # fmt: skip
def test_values_that_are_rounded_once_stay(picked):
    x, w = RNG.standard_normal((6, 4), np.float32), RNG.standard_normal((4, 3), np.float32)
    assert "bitcast_convert_type" not in primitives(optimise(jax.make_jaxpr(picked)(x, w)))
