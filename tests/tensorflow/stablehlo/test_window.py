"""Pooling windows, their gradients, and the primitives the compiler passes look for."""

import jax
import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

# The same examples in every run, and no limit on the first, which compiles.
FEW = settings(deadline=None, derandomize=True, max_examples=5)

WINDOWS = st.integers(1, 3)


def _array(*shape):
    return np.random.default_rng(0).permutation(np.prod(shape)).reshape(shape).astype(np.float32)


@FEW
@given(WINDOWS, WINDOWS, st.sampled_from(["SAME", "VALID"]), st.sampled_from([np.float32, np.float16]))
def test_pooling(agrees, window, stride, padding, dtype):
    x = _array(2, 5, 6, 3).astype(dtype)

    def function(x):
        return [tf.nn.max_pool2d(x, window, stride, padding), tf.nn.avg_pool2d(x, window, stride, padding)]

    agrees(function, x)


@FEW
@given(WINDOWS, WINDOWS, st.sampled_from(["SAME", "VALID"]))
def test_pooling_in_three_dimensions(agrees, window, stride, padding):
    x = _array(1, 4, 5, 4, 2)
    agrees(lambda x: [tf.nn.max_pool3d(x, window, stride, padding), tf.nn.avg_pool3d(x, window, stride, padding)], x)


def test_ties_give_the_gradient_to_the_same_element(agrees):
    agrees(lambda x: tf.nn.max_pool2d(tf.nn.relu(x), 2, 2, "VALID"), -_array(1, 4, 4, 2), compiled=True)


def test_pooling_keeps_its_primitives(agrees):
    def function(x):
        return [tf.nn.max_pool2d(x, 2, 2, "VALID"), tf.nn.avg_pool2d(x, 2, 2, "VALID")]

    low = agrees(function, _array(1, 4, 4, 2))
    names = {eqn.primitive.name for eqn in jax.make_jaxpr(low)(_array(1, 4, 4, 2)).eqns}
    assert {"reduce_window_max", "reduce_window_sum", "select_and_scatter_add"} <= names


def test_dilated_windows(agrees):
    agrees(lambda x: tf.nn.pool(x, [2, 2], "MAX", padding="VALID", dilations=[2, 2]), _array(2, 6, 7, 2))


def test_local_response_normalisation(agrees):
    agrees(lambda x: tf.nn.local_response_normalization(x, 2), _array(1, 3, 3, 5) / 9)


def test_patches(agrees):
    agrees(lambda x: tf.image.extract_patches(x, [1, 2, 3, 1], [1, 2, 1, 1], [1, 1, 1, 1], "SAME"), _array(1, 5, 6, 2))
