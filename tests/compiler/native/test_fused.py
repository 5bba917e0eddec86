"""Convolutions that do what follows them as well compute what the program says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.extend.core import jaxpr_as_fun

from openipu.compiler.native.fused import Kind
from openipu.compiler.passes import convolution, native_fused, optimise
from tests.compiler.passes.checking import check, compare

pytestmark = pytest.mark.usefixtures("kernels")

_SETTINGS = settings(
    derandomize=True, deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_WINOGRADS = (Kind.WINOGRAD, Kind.WIDE_WINOGRAD)
_NHWC, _NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")


@pytest.fixture
def only(monkeypatch):
    """One of these kernels wherever it computes a convolution at all, however small or large it is."""

    def choose(kind):
        monkeypatch.setattr(convolution, "_cost", lambda *arguments: 1e30)
        monkeypatch.setattr(convolution, "_FAMILIES", (native_fused,))
        monkeypatch.setattr(native_fused, "_FEWEST_CHANNELS", 1)
        monkeypatch.setattr(native_fused, "_MOST_INPUTS", 1e9)
        monkeypatch.setattr(native_fused, "_TAKES", {kind: native_fused._TAKES[kind]})

    return choose


@st.composite
def layers(draw, kernels, strides):
    """A layer with a bias, a rectifier and pooling, or some of them, and its operands."""
    numbers = lax.ConvDimensionNumbers(*(tuple(draw(st.permutations(range(4)))) for _ in range(3)))
    batch, inputs = draw(st.integers(1, 5)), draw(st.sampled_from([1, 3, 8, 16, 19, 35]))
    outputs = draw(st.sampled_from([1, 7, 16, 33, 48, 70]))

    def both(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(2))

    space, kernel = both(3, 14), tuple(draw(kernels) for _ in range(2))
    assume(max(kernel) > 1)
    window_strides, padding = tuple(draw(strides) for _ in range(2)), tuple(zip(both(-1, 3), both(-1, 3), strict=True))
    for (low, high), n, k in zip(padding, space, kernel, strict=True):
        assume(low + n + high >= k)
    windows = [
        (low + n + high - k) // stride + 1
        for (low, high), n, k, stride in zip(padding, space, kernel, window_strides, strict=True)
    ]
    biased, rectified, pooled, flipped = (draw(st.booleans()) for _ in range(4))
    # What pooling drops is not computed. A kernel larger than the rest is another layer's gradient.
    assume(np.prod([n // 2 * 2 if pooled else n for n in windows]) >= np.prod(kernel))
    random = np.random.default_rng(draw(st.integers(0, 99)))

    def array(sizes, spec):
        shape = [0] * len(spec)
        for size, dim in zip(sizes, spec, strict=True):
            shape[dim] = size
        return jnp.asarray(random.standard_normal(shape), jnp.float32)

    x, w = array((batch, inputs, *space), numbers.lhs_spec), array((outputs, inputs, *kernel), numbers.rhs_spec)
    b = array((outputs,), (0,))
    window = tuple(2 if dim in numbers.out_spec[2:] else 1 for dim in range(4))

    def layer(x, w, b):
        w = lax.rev(w, numbers.rhs_spec[2:]) if flipped else w
        y = lax.conv_general_dilated(x, w, window_strides, padding, dimension_numbers=numbers)
        y = y + lax.broadcast_in_dim(b, y.shape, (numbers.out_spec[1],)) if biased else y
        y = jnp.maximum(y, 0) if rectified else y
        return lax.reduce_window(y, -jnp.inf, lax.max, window, window, "VALID") if pooled else y

    return layer, (x, w, b)


@pytest.mark.parametrize("kind", _WINOGRADS)
@_SETTINGS
@given(case=layers(st.just(3), st.just(1)))
def test_any_layer_by_winograd(only, kind, case):
    only(kind)
    layer, operands = case
    assert _calls(check(layer, *operands, tolerance=3e-5)) == {kind.value}


@pytest.mark.parametrize("kind", _WINOGRADS)
def test_it_is_exact_enough(only, kind):
    only(kind)
    x, w = _normal(4, 17, 18, 128), _normal(3, 3, 128, 64)

    def layer(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC)

    (made,) = jax.jit(jaxpr_as_fun(optimise(jax.make_jaxpr(layer)(x, w))))(x, w)
    with jax.enable_x64(True):
        expected = layer(*(np.asarray(a, np.float64) for a in (x, w)))
    np.testing.assert_allclose(made, expected, atol=5e-6 * float(np.abs(expected).max()), rtol=0)


@_SETTINGS
@given(case=layers(st.integers(1, 5), st.integers(1, 3)))
def test_any_layer_of_few_inputs(only, case):
    only(Kind.SHALLOW)
    layer, operands = case
    assert _calls(check(layer, *operands, tolerance=1e-5)) == {Kind.SHALLOW.value}


@pytest.mark.parametrize("kind", _WINOGRADS)
@pytest.mark.parametrize("numbers", [_NHWC, _NCHW])
def test_bias_rectifier_and_pooling_are_part_of_the_call(only, kind, numbers):
    only(kind)
    x, w, b = _placed(numbers[0], N=4, H=13, W=12, C=16), _placed(numbers[1], H=3, W=3, I=16, O=24), _normal(24)
    channels = numbers[2].index("C")

    def layer(x, w, b):
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)
        y = jax.nn.relu(y + b.reshape([24 if dim == channels else 1 for dim in range(4)]))
        window = tuple(1 if dim in (0, channels) else 2 for dim in range(4))
        return lax.reduce_window(y, -jnp.inf, lax.max, window, window, "VALID")

    left = check(layer, x, w, b, tolerance=1e-5)
    assert left <= {kind.value, "transpose", "reshape"}


@pytest.mark.parametrize("kind", list(Kind))
def test_what_somebody_else_reads_stays(only, kind):
    only(kind)
    x, w, b = _normal(3, 8, 8, 16), _normal(3, 3, 16, 16), _normal(16)

    def step(x, w, b):
        def loss(w, b):
            y = lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=_NHWC) + b
            return (
                lax.reduce_window(jax.nn.relu(y), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") ** 2
            ).sum()

        return jax.value_and_grad(loss, (0, 1))(w, b)

    before = jax.make_jaxpr(step)(x, w, b)
    check(step, x, w, b, tolerance=1e-4)
    made = optimise(before).jaxpr
    calls = [eqn.params["layer"] for eqn in made.eqns if eqn.primitive.name == kind.value]
    # Training needs what was pooled; the layer is computed once.
    assert [(layer.pool, layer.batch) for layer in calls] == [(False, 3)]


@pytest.mark.parametrize("kind", _WINOGRADS)
def test_the_gradient_of_the_input_is_winograd_too(only, kind):
    only(kind)
    x, w = _normal(2, 9, 9, 16), _normal(3, 3, 16, 24)

    def gradient(x, w):
        return jax.vjp(lambda x: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC), x)[1]

    def step(x, w):
        return gradient(x, w)(jnp.sin(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC)))

    left = check(step, x, w, tolerance=3e-5)
    # Weights are neither reversed nor transposed for it.
    assert "rev" not in left
    assert "transpose" not in left


@pytest.mark.parametrize("kind", [Kind.WINOGRAD, Kind.SHALLOW])
def test_what_is_not_a_number_spreads_as_far_as_in_the_program_and_no_further(only, kind):
    only(kind)
    x, w, b = _normal(2, 10, 10, 16), _normal(3, 3, 16, 16), _normal(16)
    x = x.at[0, 3, 4, 2].set(jnp.nan).at[1, 0, 9, 0].set(jnp.nan)

    def pooled(x, w, b):
        y = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC) + b)
        return y, lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    check(lambda *a: pooled(*a)[0], x, w, b, tolerance=3e-5)
    check(lambda *a: pooled(*a)[1], x, w, b, tolerance=3e-5)


def test_what_is_not_a_number_stays_in_its_wide_tiles(only):
    only(Kind.WIDE_WINOGRAD)
    x, w = _normal(2, 12, 12, 16), _normal(3, 3, 16, 16)
    x = x.at[0, 5, 6, 2].set(jnp.nan)

    def layer(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC)

    (made,) = jax.jit(jaxpr_as_fun(optimise(jax.make_jaxpr(layer)(x, w))))(x, w)
    expected, found = np.array(layer(x, w)), np.array(made)
    assert np.isnan(found[np.isnan(expected)]).all()
    # Windows 4 to 8 of rows and columns read it.
    found[0, 4:8, 4:8] = expected[0, 4:8, 4:8] = 0
    np.testing.assert_allclose(found, expected, atol=3e-5 * np.abs(expected).max())


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("axis_of_weights", [None, 0])
def test_replicas_are_lanes(only, kind, axis_of_weights):
    only(kind)
    x, w, b = _normal(3, 2, 7, 7, 16), _normal(3, 3, 3, 16, 20), _normal(3, 20)

    def layer(x, w, b):
        return jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC) + b)

    optimised = jaxpr_as_fun(optimise(jax.make_jaxpr(layer)(x[0], w[0], b[0])))

    def lanes(layer):
        inner = jax.vmap(layer, (0, axis_of_weights, axis_of_weights))
        outer = jax.vmap(inner, (0, None, None))

        def both(x, w, b):
            w, b = (w, b) if axis_of_weights == 0 else (w[0], b[0])
            return inner(x, w, b), outer(jnp.stack([x, x * 2]), w, b)

        return both

    compare(lanes(layer), lanes(lambda *a: optimised(*a)[0]), (x, w, b), tolerance=3e-5)


@pytest.mark.parametrize("kind", _WINOGRADS)
def test_who_asks_for_the_most_exact_result_gets_it(only, kind):
    only(kind)
    x, w = _normal(2, 9, 9, 16), _normal(3, 3, 16, 24)

    def layer(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC, precision="highest")

    assert not _calls(check(layer, x, w))


@pytest.mark.parametrize(
    ("batch", "space", "inputs", "outputs", "wanted"),
    [
        (64, 13, 32, 64, Kind.WIDE_WINOGRAD), (16, 4, 512, 512, Kind.WINOGRAD), (16, 32, 64, 64, Kind.WIDE_WINOGRAD),
        (64, 8, 256, 256, Kind.WIDE_WINOGRAD), (64, 28, 1, 32, Kind.SHALLOW), (16, 32, 3, 64, Kind.SHALLOW),
    ],
)  # fmt: skip
def test_layers_of_networks_take_them(batch, space, inputs, outputs, wanted):
    x, w = jnp.zeros((batch, space, space, inputs)), jnp.zeros((3, 3, inputs, outputs))
    made = optimise(
        jax.make_jaxpr(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC))(x, w)
    )
    assert _calls({eqn.primitive.name for eqn in made.jaxpr.eqns}) == {wanted.value}


def _calls(primitives):
    return {name for name in primitives if name.startswith("openipu")}


def _placed(spec, **sizes):
    return _normal(*(sizes[name] for name in spec))


def _normal(*shape):
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)
