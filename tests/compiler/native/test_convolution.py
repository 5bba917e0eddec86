"""Convolutions by native kernels compute what the program says, whatever its shapes, strides and orders."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from jax import lax
from jax.extend.core import jaxpr_as_fun

from openipu.compiler.passes import convolution, lane_sums, native_convolution, optimise
from tests.compiler.passes.checking import check, compare
from tests.compiler.passes.test_convolution import convolutions

pytestmark = pytest.mark.usefixtures("kernels")

_SETTINGS = settings(
    derandomize=True, deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_FORWARD, _DATA, _WEIGHTS = (f"openipu_convolution_{kind}" for kind in ("forward", "data_gradient", "weight_gradient"))
_NHWC = ("NHWC", "HWIO", "NHWC")


@pytest.fixture
def preferred(monkeypatch):
    """oneDNN's kernels wherever there are any, however small the convolution."""
    monkeypatch.setattr(convolution, "_cost", lambda *arguments: 1e30)
    monkeypatch.setattr(native_convolution, "_FEWEST_CHANNELS", math.inf)


@_SETTINGS
@given(case=convolutions())
def test_any_convolution(preferred, case):
    x, w, params = case
    tolerance = {"float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2}[x.dtype.name]
    check(lambda x, w: lax.conv_general_dilated(x, w, **params), x, w, tolerance=tolerance)


@settings(_SETTINGS, max_examples=15)
@given(case=convolutions(gradients=True))
def test_the_gradients_of_any_convolution(preferred, case):
    x, w, params = case
    x, w = x.astype(jnp.float32), w.astype(jnp.float32)

    def loss(x, w):
        return (lax.conv_general_dilated(x, w, **params) ** 2).sum()

    check(jax.grad(loss, argnums=(0, 1)), x, w, tolerance=1e-4)


@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("groups", [1, 2, 32])
def test_a_layer_and_its_gradients_are_three_kernels(preferred, strides, groups):
    x, w = _normal(2, 9, 7, 32), _normal(3, 3, 32 // groups, 32)

    def loss(x, w):
        y = lax.conv_general_dilated(
            x, w, (strides, strides), "SAME", dimension_numbers=_NHWC, feature_group_count=groups
        )
        return (y**2).sum()

    left = check(jax.grad(loss, argnums=(0, 1)), x, w, tolerance=1e-4)
    assert {_FORWARD, _DATA, _WEIGHTS} <= left
    assert not {"conv_general_dilated", "dot_general"} & left
    if groups == 1:
        # The gradient of the input needs the weights as they are, not reversed and not transposed.
        assert not {"rev", "transpose"} & left


@pytest.mark.parametrize("axis_of_weights", [None, 0])
def test_replicas_are_lanes(preferred, axis_of_weights):
    x, w = _normal(3, 4, 7, 7, 8), _normal(3, 3, 3, 8, 8)

    def step(x, w):
        def loss(x, w):
            return (lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=_NHWC) ** 2).sum()

        return jax.grad(loss, argnums=(0, 1))(x, w)

    optimised = jaxpr_as_fun(optimise(jax.make_jaxpr(step)(x[0], w[0])))

    def twice(step):
        # Lanes of lanes, too.
        lanes = jax.vmap(step, (0, axis_of_weights))
        both = jax.vmap(lanes, (0, None))
        return lambda x, w: both(jnp.stack([x, x * 2]), w if axis_of_weights == 0 else w[0])

    compare(twice(step), twice(lambda *a: tuple(optimised(*a))), (x, w), tolerance=1e-4)


def test_the_gradient_of_weights_that_lanes_share_is_one_kernel(preferred):
    x, w = _normal(3, 4, 7, 7, 8), _normal(3, 3, 8, 8)

    def step(x, w):
        return jax.grad(lambda w: (lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC) ** 2).sum())(
            w
        )

    optimised = jaxpr_as_fun(optimise(jax.make_jaxpr(step)(x[0], w)))
    mapped = jax.make_jaxpr(jax.vmap(lambda x, w: optimised(x, w), (0, None)))(x, w)
    summed = lane_sums.summed(mapped, [True])
    calls = [eqn for eqn in jax.make_jaxpr(summed)(x, w).eqns if eqn.primitive.name == _WEIGHTS]
    assert [eqn.params["lanes"] for eqn in calls] == [0]
    compare(lambda x, w: jax.vmap(step, (0, None))(x, w).sum(0), lambda x, w: summed(x, w)[0], (x, w), tolerance=1e-4)


def test_in_a_loop_two_at_a_time():
    x, w = _normal(5, 8, 12, 12, 16), _normal(2, 3, 3, 16, 16)

    def step(w, x):
        one, other = (lax.conv_general_dilated(x, v, (1, 1), "SAME", dimension_numbers=_NHWC) for v in w)
        return w * 0.9, (one * other).sum((1, 2))

    optimised = jaxpr_as_fun(optimise(jax.make_jaxpr(step)(w, x[0])))
    compare(lambda w, x: lax.scan(step, w, x), lambda w, x: lax.scan(lambda *a: tuple(optimised(*a)), w, x), (w, x))


def _normal(*shape):
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)
