"""Convolutions of few channels, with the batch innermost, compute what the program says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.extend.core import jaxpr_as_fun

from openipu.compiler.passes import convolution, lane_sums, native_convolution, native_direct, optimise
from tests.compiler.passes.checking import check, compare

pytestmark = pytest.mark.usefixtures("kernels")

_SETTINGS = settings(
    derandomize=True, deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_CONVOLUTION, _WEIGHTS = "openipu_direct_convolution", "openipu_direct_weight_gradient"
_NHWC, _NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")


@pytest.fixture
def preferred(monkeypatch):
    """These kernels wherever they compute a convolution at all, however small or large it is."""
    monkeypatch.setattr(convolution, "_cost", lambda *arguments: 1e30)
    monkeypatch.setattr(native_convolution, "calls", lambda *arguments: [])
    monkeypatch.setattr(native_direct, "_SMALLEST_BATCH", 1)
    monkeypatch.setattr(native_direct, "_MOST_CHANNELS", 1e9)


@st.composite
def convolutions(draw):
    """Operands and parameters of a convolution along one or two dimensions."""
    rank = draw(st.sampled_from([1, 2, 2]))
    # Vectors that are full, that are not, two at once, and all of these after each other.
    batch = draw(st.sampled_from([1, 8, 13, 16, 32, 37, 59]))
    inputs, outputs = draw(st.integers(1, 5)), draw(st.sampled_from([1, 3, 8, 9, 14]))

    def each(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    space, kernel = each(3, 9), each(1, 5)
    assume(max(kernel) > 1)
    specs = [tuple(draw(st.permutations(range(rank + 2)))) for _ in range(3)]
    params = dict(
        window_strides=each(1, 3),
        padding=tuple(zip(each(-1, 3), each(-1, 3), strict=True)),
        lhs_dilation=each(1, 2) if draw(st.booleans()) else (1,) * rank,
        rhs_dilation=each(1, 2),
        dimension_numbers=lax.ConvDimensionNumbers(*specs),
    )
    random = np.random.default_rng(draw(st.integers(0, 99)))

    def array(sizes, spec):
        shape = [0] * len(spec)
        for size, dim in zip(sizes, spec, strict=True):
            shape[dim] = size
        return jnp.asarray(random.standard_normal(shape), jnp.float32)

    x, w = array((batch, inputs, *space), specs[0]), array((outputs, inputs, *kernel), specs[1])
    for (low, high), n, spread, k, dilation in zip(
        params["padding"], space, params["lhs_dilation"], kernel, params["rhs_dilation"], strict=True
    ):
        assume(low + (n - 1) * spread + 1 + high >= (k - 1) * dilation + 1)
    return x, w, params


@_SETTINGS
@given(case=convolutions())
def test_any_convolution_and_its_gradients(preferred, case):
    x, w, params = case

    def step(x, w):
        y, back = jax.vjp(lambda x, w: lax.conv_general_dilated(x, w, **params), x, w)
        return y, *back(jnp.sin(y))

    left = check(step, x, w, tolerance=1e-4)
    assert {_CONVOLUTION, _WEIGHTS} & left


@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("numbers", [_NHWC, _NCHW])
def test_a_layer_and_its_gradients_are_kernels_and_only_they(preferred, strides, numbers):
    x, w = _normal(*_placed(numbers[0], N=20, H=9, W=7, C=3)), _normal(*_placed(numbers[1], H=3, W=3, I=3, O=5))

    def step(x, w):
        y, back = jax.vjp(
            lambda x, w: lax.conv_general_dilated(x, w, (strides, strides), "SAME", dimension_numbers=numbers), x, w
        )
        return y, *back(y)

    left = check(step, x, w, tolerance=1e-4)
    # Arrays are brought into their order and back; weights are neither reversed nor transposed.
    assert {_CONVOLUTION, _WEIGHTS} <= left <= {_CONVOLUTION, _WEIGHTS, "transpose"}


def test_a_network_keeps_the_batch_innermost(preferred):
    x, w, dense = _normal(32, 8, 8, 4), _normal(2, 3, 3, 4, 4), _normal(4 * 4 * 4, 10)

    def network(x, w, dense):
        for each in w:
            x = jnp.maximum(lax.conv_general_dilated(x, each, (1, 1), "SAME", dimension_numbers=_NHWC), 0)
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return x.reshape(32, -1) @ dense

    check(network, x, w, dense)
    made = optimise(jax.make_jaxpr(network)(x, w, dense)).jaxpr
    moved = [eqn.invars[0].aval.shape for eqn in made.eqns if eqn.primitive.name == "transpose"]
    # On its way in, and the matrix (not the images) that a product of XLA's wants the other way round.
    assert moved == [(32, 8, 8, 4), (64, 32)]


def test_the_gradient_of_a_dense_layer_comes_with_the_batch_innermost(preferred):
    rng = np.random.default_rng(0)
    x, w, v = (jnp.asarray(rng.standard_normal(s), jnp.float32) for s in ((16, 6, 6, 2), (3, 3, 2, 4), (144, 5)))

    def loss(w, v):
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC)
        return jnp.sum(jnp.tanh(y.reshape(16, -1) @ v))

    gradients = jax.grad(loss, (0, 1))
    check(gradients, w, v)
    moved = [
        e.invars[0].aval.shape
        for e in optimise(jax.make_jaxpr(gradients)(w, v)).jaxpr.eqns
        if e.primitive.name == "transpose"
    ]
    assert (16, 6, 6, 4) not in moved


def test_what_is_not_a_number_spreads_as_far_as_in_the_program_and_no_further(preferred):
    x, w = _normal(19, 6, 6, 2), _normal(3, 3, 2, 3)
    x = x.at[3, 0, 0, 0].set(jnp.inf).at[18, 5, 5, 1].set(jnp.nan).at[7, 2, 2, 0].set(-jnp.inf)

    def step(x, w):
        y, back = jax.vjp(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC), x, w)
        return y, *back(y)

    assert {_CONVOLUTION, _WEIGHTS} <= check(step, x, w, tolerance=1e-4)


@pytest.mark.parametrize("axis_of_weights", [None, 0])
def test_replicas_are_lanes(preferred, axis_of_weights):
    x, w = _normal(3, 9, 7, 7, 2), _normal(3, 3, 3, 2, 4)

    def step(x, w):
        y, back = jax.vjp(lambda x, w: lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=_NHWC), x, w)
        return y, *back(y)

    optimised = jaxpr_as_fun(optimise(jax.make_jaxpr(step)(x[0], w[0])))

    def lanes(step):
        # Lanes of lanes, too: with the inner weights for all of the outer lanes, and with their own.
        inner = jax.vmap(step, (0, axis_of_weights))
        outer = [jax.vmap(inner, (0, axis)) for axis in (None, 0)]

        def both(x, w):
            w = w if axis_of_weights == 0 else w[0]
            return outer[0](jnp.stack([x, x * 2]), w), outer[1](jnp.stack([x, x * 2]), jnp.stack([w, w * 3]))

        return both

    compare(lanes(step), lanes(lambda *a: tuple(optimised(*a))), (x, w), tolerance=1e-4)


def test_the_gradient_of_weights_that_lanes_share_is_one_kernel(preferred):
    x, w = _normal(3, 9, 7, 7, 2), _normal(3, 3, 2, 4)

    def step(x, w):
        return jax.grad(lambda w: (lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC) ** 2).sum())(
            w
        )

    optimised = jaxpr_as_fun(optimise(jax.make_jaxpr(step)(x[0], w)))
    mapped = jax.make_jaxpr(jax.vmap(lambda x, w: optimised(x, w), (0, None)))(x, w)
    summed = lane_sums.summed(mapped, [True])
    calls = [eqn for eqn in jax.make_jaxpr(summed)(x, w).eqns if eqn.primitive.name == _WEIGHTS]
    assert [(eqn.params["lanes"], eqn.params["sets"]) for eqn in calls] == [(3, 0)]

    def want(x, w):
        return jax.vmap(step, (0, None))(x, w).sum(0)

    # Sums within lanes of others: micro-batches of replicas.
    outer = jnp.stack([x, x * 2])
    compare(jax.vmap(want, (0, None)), jax.vmap(lambda x, w: summed(x, w)[0], (0, None)), (outer, w), tolerance=1e-4)


def test_one_thread_or_many_the_result_is_reproducible(preferred):
    x, w = _normal(32, 16, 16, 8), _normal(3, 3, 8, 8)

    def gradient(x, w):
        return jax.grad(lambda w: (lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC) ** 2).sum())(
            w
        )

    compiled = jax.jit(jaxpr_as_fun(optimise(jax.make_jaxpr(gradient)(x, w))))
    results = [np.asarray(compiled(x, w)[0]) for _ in range(5)]
    assert all((each == results[0]).all() for each in results)


@pytest.mark.parametrize(
    ("batch", "inputs", "outputs", "padding"), [(32, 8, 8, "SAME"), (16, 1, 5, "VALID"), (16, 5, 12, "VALID")]
)
def test_layers_of_few_channels_take_them(batch, inputs, outputs, padding):
    x, w = jnp.zeros((batch, 28, 28, inputs)), jnp.zeros((3, 3, inputs, outputs))
    assert _kernels(x, w, padding) == {_CONVOLUTION, _WEIGHTS}


@pytest.mark.parametrize(("batch", "inputs", "outputs", "kernel"), [(2, 8, 8, 3), (64, 1, 32, 3), (32, 8, 8, 1)])
def test_small_batches_many_channels_and_plain_products_do_not(batch, inputs, outputs, kernel):
    x, w = jnp.zeros((batch, 28, 28, inputs)), jnp.zeros((kernel, kernel, inputs, outputs))
    assert not {_CONVOLUTION, _WEIGHTS} & _kernels(x, w, "SAME")


def _kernels(x, w, padding):
    def step(x, w):
        y, back = jax.vjp(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=_NHWC), x, w)
        return back(y)

    made = optimise(jax.make_jaxpr(step)(x, w)).jaxpr
    return {eqn.primitive.name for eqn in made.eqns if eqn.primitive.name.startswith("openipu")}


def _placed(spec, **sizes):
    return tuple(sizes[name] for name in spec)


def _normal(*shape):
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)
