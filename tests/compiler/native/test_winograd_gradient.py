"""Gradients of weights of 3x3 by Winograd's algorithm are those of the program, whatever its shapes and orders."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.extend.core import jaxpr_as_fun

from openipu.compiler.native.convolution import Kind
from openipu.compiler.passes import convolution, lane_sums, native_convolution, optimise
from tests.compiler.passes.checking import check, compare

pytestmark = pytest.mark.usefixtures("kernels")

_SETTINGS = settings(
    derandomize=True, deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_WINOGRADS = {
    Kind.WINOGRAD_WEIGHT_GRADIENT: "openipu_convolution_winograd_weight_gradient",
    Kind.WIDE_WINOGRAD_WEIGHT_GRADIENT: "openipu_convolution_wide_winograd_weight_gradient",
}
_NHWC, _NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")


@pytest.fixture(params=_WINOGRADS)
def preferred(monkeypatch, request):
    """The name of this kernel, wherever it computes a gradient at all, however small or large it is."""
    cost = native_convolution.Call.cost

    def least(call, rewriter):
        return cost(call, rewriter) if call.kind is request.param else 1e20

    monkeypatch.setattr(native_convolution.Call, "cost", least)
    monkeypatch.setattr(convolution, "_cost", lambda *arguments: 1e30)
    monkeypatch.setattr(native_convolution, "_FEWEST_CHANNELS", 1)
    return _WINOGRADS[request.param]


def gradient(padding="SAME", numbers=_NHWC, precision=None, strides=(1, 1), dilation=(1, 1)):
    """The gradient of weights, from the input, the weights and the gradient of the output."""

    def of_weights(x, w, y):
        def layer(w):
            return lax.conv_general_dilated(
                x, w, strides, padding, rhs_dilation=dilation, dimension_numbers=numbers, precision=precision
            )

        return jax.vjp(layer, w)[1](y)[0]

    return of_weights


def noise(*shape):
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), jnp.float32)


def operands(batch, rows, columns, inputs, outputs, kernel=3):
    """Of a layer whose result is as large as its input, channels innermost."""
    return (
        noise(batch, rows, columns, inputs),
        noise(kernel, kernel, inputs, outputs),
        noise(batch, rows, columns, outputs),
    )


@_SETTINGS
@given(
    batch=st.integers(1, 5),
    space=st.tuples(st.integers(4, 15), st.integers(4, 70)),
    inputs=st.sampled_from([1, 3, 8, 16, 19, 35, 70]),
    outputs=st.sampled_from([1, 7, 16, 33, 48, 70]),
    padding=st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * 2),
    channels_first=st.booleans(),
)
def test_any_layer(preferred, batch, space, inputs, outputs, padding, channels_first):
    windows = [n + low + high - 2 for n, (low, high) in zip(space, padding, strict=True)]
    x, w, y = noise(batch, *space, inputs), noise(3, 3, inputs, outputs), noise(batch, *windows, outputs)
    if channels_first:
        x, w, y = x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), y.transpose(0, 3, 1, 2)
    compute = gradient(padding, _NCHW if channels_first else _NHWC)
    # The smallest gradients can also be read as a layer.
    found = check(compute, x, w, y, tolerance=1e-4)
    assert preferred in found or min(windows) < 4


@pytest.mark.parametrize(("inputs", "outputs"), [(96, 80), (130, 64), (64, 200)])
@pytest.mark.parametrize(("batch", "space"), [(3, 9), (11, 16)])
def test_sums_that_threads_share(preferred, inputs, outputs, batch, space):
    # Too many for one each, at once or (704 tiles) in rounds.
    assert preferred in check(gradient(), *operands(batch, space, space, inputs, outputs), tolerance=1e-4)


def test_it_is_exact_enough(preferred):
    x, w, y = operands(8, 16, 16, 64, 64)
    optimised = optimise(jax.make_jaxpr(gradient())(x, w, y))
    assert preferred in {eqn.primitive.name for eqn in optimised.eqns}
    (made,) = jax.jit(jaxpr_as_fun(optimised))(x, w, y)
    with jax.enable_x64(True):
        expected = gradient()(*(np.asarray(a, np.float64) for a in (x, w, y)))
    np.testing.assert_allclose(made, expected, atol=1e-5 * float(np.abs(expected).max()), rtol=0)


@pytest.mark.parametrize(
    "given",
    [
        {"precision": lax.Precision.HIGHEST},
        {"strides": (2, 2)},
        {"dilation": (2, 2)},
    ],
    ids=["the most exact", "strides", "dilated"],
)
def test_others_are_not_taken(preferred, given):
    x, w, y = operands(2, 12, 12, 16, 16)
    y = y[:, :6, :6] if "strides" in given else y
    assert preferred not in check(gradient(**given), x, w, y, tolerance=1e-4)


def test_nor_are_other_windows_and_types(preferred):
    assert preferred not in check(gradient(), *operands(2, 12, 12, 16, 16, kernel=5), tolerance=1e-4)
    half = [a.astype(jnp.bfloat16) for a in operands(2, 12, 12, 16, 16)]
    assert preferred not in check(gradient(), *half, tolerance=4e-2)


@pytest.mark.parametrize("shared", [True, False])
def test_lanes(preferred, shared):
    x, w, y = (jnp.stack([a, a * 2, a + 1]) for a in operands(2, 9, 8, 12, 20))
    optimised = jaxpr_as_fun(optimise(jax.make_jaxpr(gradient())(x[0], w[0], y[0])))

    def twice(step):
        # Lanes of lanes, too.
        lanes = jax.vmap(step, (0, None if shared else 0, 0))
        return lambda x, w, y: jax.vmap(lanes, (0, None, None))(jnp.stack([x, x * 2]), w[0] if shared else w, y)

    compare(twice(gradient()), twice(lambda *a: optimised(*a)[0]), (x, w, y), tolerance=1e-4)


def test_the_gradient_of_weights_that_lanes_share_is_one_call(preferred):
    x, w, y = (jnp.stack([a, a * 2, a + 1]) for a in operands(2, 9, 8, 12, 20))
    optimised = jaxpr_as_fun(optimise(jax.make_jaxpr(gradient())(x[0], w[0], y[0])))
    mapped = jax.make_jaxpr(jax.vmap(optimised, (0, None, 0)))(x, w[0], y)
    summed = lane_sums.summed(mapped, [True])
    calls = [eqn for eqn in jax.make_jaxpr(summed)(x, w[0], y).eqns if eqn.primitive.name == preferred]
    assert [(eqn.params["lanes"], eqn.params["layer"].batch) for eqn in calls] == [(0, 6)]

    def expected(x, w, y):
        return jax.vmap(gradient(), (0, None, 0))(x, w, y).sum(0)

    compare(expected, lambda *a: summed(*a)[0], (x, w[0], y), tolerance=1e-4)


def test_a_network_trains_the_same_in_a_loop(preferred):
    images, first, second = noise(6, 8, 12, 12, 16), noise(3, 3, 16, 32) / 12, noise(3, 3, 32, 32) / 17

    def loss(weights, x):
        for w in weights:
            x = jnp.maximum(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC), 0)
        return (x**2).mean()

    def step(weights, x):
        value, slopes = jax.value_and_grad(loss)(weights, x)
        return [w - 0.1 * slope for w, slope in zip(weights, slopes, strict=True)], value

    closed = optimise(jax.make_jaxpr(step)([first, second], images[0]))
    assert preferred in {eqn.primitive.name for eqn in closed.eqns}
    compute = jaxpr_as_fun(closed)

    def optimised(weights, x):
        *weights, value = compute(*weights, x)
        return weights, value

    compare(
        lambda *a: lax.scan(step, list(a[:2]), a[2]),
        lambda *a: lax.scan(optimised, list(a[:2]), a[2]),
        (first, second, images),
        tolerance=1e-4,
    )
