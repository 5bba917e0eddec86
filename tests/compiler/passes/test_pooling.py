"""Pooling and its gradients become slices and comparisons; of equal values the first one wins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jax import lax

from .checking import check

_SETTINGS = settings(derandomize=True, deadline=None, max_examples=14)
_MONOIDS = {"max": (-jnp.inf, lax.max), "min": (jnp.inf, lax.min), "sum": (0.0, lax.add)}


@st.composite
def windows(draw, dilated: bool):
    """An operand full of ties, a window over it and its parameters."""
    rank = draw(st.integers(1, 4))

    def per_dimension(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    shape, window, strides = per_dimension(3, 6), per_dimension(1, 3), per_dimension(1, 3)
    least = -1 if dilated else 0
    padding = tuple((draw(st.integers(least, 2)), draw(st.integers(least, 2))) for _ in range(rank))
    base, dilation = (per_dimension(1, 2), per_dimension(1, 2)) if dilated else ((1,) * rank, (1,) * rank)
    for low, high in padding:
        assume(low + high > -2)
    spans = [(w - 1) * d + 1 for w, d in zip(window, dilation, strict=True)]
    reach = [lo + (n - 1) * b + 1 + hi for n, (lo, hi), b in zip(shape, padding, base, strict=True)]
    assume(all(r >= s for r, s in zip(reach, spans, strict=True)))
    random = np.random.default_rng(draw(st.integers(0, 9)))
    dtype = draw(st.sampled_from(["float32", "float16", "bfloat16"]))
    return jnp.asarray(random.integers(-2, 3, shape), dtype), window, strides, padding, base, dilation


@_SETTINGS
@given(windows(dilated=True), st.sampled_from(sorted(_MONOIDS)))
def test_pooling_is_exactly_what_it_was(case, monoid):
    x, *params = case
    start, combine = _MONOIDS[monoid]
    start = np.asarray(start, x.dtype)
    left = check(lambda x: lax.reduce_window(x, start, combine, *params), x, tolerance=0)
    assert not any(name.startswith("reduce_window") for name in left)


@_SETTINGS
@given(windows(dilated=False))
def test_the_gradient_of_max_pooling_goes_to_the_first_of_equal_values(case):
    x, window, strides, padding, _, _ = case
    x = x.astype(jnp.float32)

    def pool(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)

    shape = jax.eval_shape(pool, x).shape
    weights = jnp.arange(1, 1 + np.prod(shape), dtype=jnp.float32).reshape(shape)
    left = check(jax.grad(lambda x: (pool(x) * weights).sum()), x, tolerance=0)
    assert not any(name.startswith(("reduce_window", "select_and_scatter")) for name in left)


@pytest.mark.parametrize("values", [[-np.inf, -np.inf, -np.inf], [np.nan, 1, np.nan], [0, -0.0, 0]])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_the_winner_among_infinities_nans_and_zeros_is_the_same(values, stride):
    x = jnp.asarray(np.resize(values, 12), jnp.float32)

    def pool(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (2,), (stride,), ((1, 1),))

    weights = jnp.arange(1, 1 + pool(x).size, dtype=jnp.float32)
    check(jax.grad(lambda x: jnp.where(jnp.isnan(pool(x)), 1.0, pool(x)) @ weights), x, tolerance=0)
    check(jax.vjp(pool, x)[1], weights, tolerance=0)


@_SETTINGS
@given(windows(dilated=False))
def test_the_gradient_of_average_pooling(case):
    x, window, strides, padding, _, _ = case

    def loss(x):
        return (lax.reduce_window(x, 0.0, lax.add, window, strides, padding) ** 2).sum()

    assert not any(name.startswith("reduce_window") for name in check(jax.grad(loss), x.astype(jnp.float32)))


def test_a_very_long_window_is_left_alone():
    left = check(lambda x: lax.reduce_window(x, 0.0, lax.add, (99,), (1,), "SAME"), jnp.ones(200))
    assert "reduce_window_sum" in left
