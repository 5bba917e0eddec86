"""The gradient of maxima by a native kernel is exactly what the program says; of equal values the first one wins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.extend.core import jaxpr_as_fun

from openipu.compiler.passes import native_pooling, optimise
from tests.compiler.passes.checking import check, compare

pytestmark = pytest.mark.usefixtures("kernels")

_SETTINGS = settings(
    derandomize=True, deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def preferred(monkeypatch):
    """Native kernels wherever there are any, however little there is to do."""
    monkeypatch.setattr(native_pooling, "_LEAST_WORK", 0)
    monkeypatch.setattr(native_pooling, "_SHORTEST_ROW", 1)


@st.composite
def windows(draw):
    """An array full of ties and a window over its two middle dimensions."""
    sides = [
        draw(st.tuples(*(st.integers(*bounds) for bounds in ((3, 7), (1, 3), (1, 3), (0, 2), (0, 2))))) for _ in "12"
    ]
    for size, extent, _, low, high in sides:
        assume(low + size + high >= extent)
    space, extents, strides, lows, highs = zip(*sides, strict=True)
    assume(any(extent > stride for extent, stride in zip(extents, strides, strict=True)))
    shape = (draw(st.integers(1, 3)), *space, draw(st.sampled_from([1, 5, 70])))
    x = np.random.default_rng(draw(st.integers(0, 9))).integers(-2, 3, shape)
    padding = ((0, 0), *zip(lows, highs, strict=True), (0, 0))
    return jnp.asarray(x, jnp.float32), (1, *extents, 1), (1, *strides, 1), padding


@_SETTINGS
@given(case=windows())
def test_the_gradient_goes_to_the_first_of_equal_values(preferred, case):
    x, *window = case

    def pool(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, *window)

    shape = jax.eval_shape(pool, x).shape
    weights = jnp.arange(1, 1 + np.prod(shape), dtype=jnp.float32).reshape(shape)
    left = check(jax.grad(lambda x: (pool(x) * weights).sum()), x, tolerance=0)
    assert "openipu_pooling_maximum_gradient" in left


@pytest.mark.parametrize("values", [[-np.inf, -np.inf, -np.inf], [np.nan, 1, np.nan], [0, -0.0, 0]])
def test_infinities_and_what_is_not_a_number(preferred, values):
    x = jnp.asarray(np.resize(values, (12, 1)), jnp.float32) * jnp.ones((1, 9))

    def pool(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (2, 1), (1, 1), ((1, 1), (0, 0)))

    weights = jnp.arange(1, 1 + pool(x).size, dtype=jnp.float32).reshape(pool(x).shape)
    assert "openipu_pooling_maximum_gradient" in check(jax.vjp(pool, x)[1], weights, tolerance=0)


def test_replicas_are_lanes(preferred):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((3, 2, 6, 6, 8)), jnp.float32)

    def step(x):
        return jax.grad(
            lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") ** 2).sum()
        )(x)

    optimised = jaxpr_as_fun(optimise(jax.make_jaxpr(step)(x[0])))
    compare(jax.vmap(step), jax.vmap(lambda x: optimised(x)[0]), (x,))


@pytest.mark.parametrize(("size", "stride"), [(8, 1), (64, 2)])
def test_a_little_pooling_and_windows_apart_are_left_to_xla(size, stride):
    x = jnp.ones((1, size, size, 8))

    def pool(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, stride, stride, 1), "VALID")

    left = check(jax.grad(lambda x: pool(x).sum()), x, tolerance=0)
    assert not any(name.startswith("openipu") for name in left)
