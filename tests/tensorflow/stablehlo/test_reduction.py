"""Reductions over dimensions, cumulative sums and positions of extremes."""

import jax
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

# The same examples in every run, and no limit on the first, which compiles.
FEW = settings(deadline=None, derandomize=True, max_examples=5)


def _array(shape, dtype, seed=0):
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)


@FEW
@given(hnp.array_shapes(max_dims=4, max_side=4), st.sampled_from([np.float32, np.int32, np.int64, np.int8]), st.data())
def test_sums_products_and_extremes(agrees, shape, dtype, data):
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
    keep = data.draw(st.booleans())

    def function(x):
        kinds = [tf.reduce_sum, tf.reduce_max, tf.reduce_min, tf.reduce_prod]
        return [kind(x, axes, keep) for kind in kinds] + [tf.reduce_any(x > 0, axes), tf.reduce_all(x > 0, axes)]

    agrees(function, _array(shape, dtype))


@FEW
@given(hnp.array_shapes(min_dims=2, max_dims=3, min_side=2, max_side=4))
def test_statistics(agrees, shape):
    def function(x):
        return [
            tf.reduce_mean(x, 0),
            tf.math.reduce_std(x, 1),
            tf.math.reduce_variance(x),
            tf.reduce_logsumexp(x, 0),
            tf.norm(x),
        ]

    agrees(function, np.random.default_rng(0).standard_normal(shape).astype(np.float32), tolerance=1e-4)


@FEW
@given(hnp.array_shapes(min_dims=1, max_dims=3, max_side=6), st.booleans(), st.booleans(), st.data())
def test_cumulative_sums(agrees, shape, exclusive, reverse, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = np.random.default_rng(0).uniform(0.5, 1.5, shape).astype(np.float32)
    agrees(lambda x: [tf.cumsum(x, axis, exclusive, reverse), tf.math.cumprod(x, axis, exclusive, reverse)], x)


def test_cumulative_sums_are_recognised(agrees):
    low = agrees(lambda x: tf.cumsum(x, 1), _array((3, 50), np.float32), gradient=False)
    with jax.enable_x64(True):
        names = {eqn.primitive.name for eqn in jax.make_jaxpr(low)(np.zeros((3, 50), np.float32)).eqns}
    assert "cumsum" in names


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_positions_of_extremes(agrees, dtype):
    x = _array((4, 5, 6), dtype)
    agrees(lambda x: [tf.argmax(x, 0), tf.argmin(x, 1), tf.argmax(x, 2, tf.int32)], x, gradient=False)


def test_reductions_keep_their_names(agrees):
    def function(x):
        return [
            tf.reduce_sum(x),
            tf.reduce_max(x),
            tf.reduce_min(x),
            tf.reduce_prod(x),
            tf.reduce_any(x > 0),
            tf.reduce_all(x > 0),
        ]

    low = agrees(function, _array((3, 4), np.float32), gradient=False)
    names = {eqn.primitive.name for eqn in jax.make_jaxpr(low)(np.zeros((3, 4), np.float32)).eqns}
    assert {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_or", "reduce_and"} <= names
