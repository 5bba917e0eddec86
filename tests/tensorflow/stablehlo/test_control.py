"""Branches and loops, and loops whose number of iterations is known."""

import jax
import numpy as np
import pytest
import tensorflow as tf

X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


def _primitives(low, *args):
    with jax.enable_x64(True):
        return {eqn.primitive.name for eqn in jax.make_jaxpr(low)(*args).eqns}


@pytest.mark.parametrize("flag", [True, False])
def test_branches(agrees, flag):
    agrees(lambda p, x: tf.cond(p, lambda: tf.sin(x), lambda: x * x), np.bool_(flag), X)


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 9])
def test_one_of_many_branches(agrees, index):
    def function(i, x):
        return tf.switch_case(i, [lambda: x, lambda: x * 2, lambda: tf.exp(x)])

    agrees(function, np.int32(index), X)


def _power(x, count):
    return tf.while_loop(lambda i, y: i < count, lambda i, y: (i + 1, y * x), (0, x), maximum_iterations=6)[1]


def test_a_loop_with_known_bounds_becomes_a_scan(agrees):
    low = agrees(lambda x: _power(x, 5), X)
    assert "scan" in _primitives(low, X)
    assert "while" not in _primitives(low, X)


@pytest.mark.parametrize("count", [0, 1, 4, 9])
def test_a_loop_with_bounds_from_data(agrees, count):
    low = agrees(lambda x, n: _power(x, n), X, np.int32(count))
    assert "while" in _primitives(low, X, np.int32(count))


def test_a_loop_that_ends_by_its_values(agrees):
    def function(x):
        return tf.while_loop(lambda y: tf.reduce_sum(y) < 100.0, lambda y: (y * 2 + 1,), (x,))[0]

    agrees(function, X, gradient=False)


def test_a_loop_that_never_runs(agrees):
    agrees(lambda x: tf.while_loop(lambda i, y: i < 0, lambda i, y: (i + 1, y * 2), (0, x)), X, gradient=False)


def test_nested_loops(agrees):
    def inner(x):
        return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + x), (0, x), maximum_iterations=3)[1]

    def function(x):
        return tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, inner(y)), (0, x), maximum_iterations=2)[1]

    agrees(function, X)


def test_arrays_of_tensors(agrees):
    def function(x):
        array = tf.TensorArray(tf.float32, 4, element_shape=(3,))
        _, array = tf.while_loop(
            lambda i, a: i < 4, lambda i, a: (i + 1, a.write(i, x[i] * tf.cast(i, tf.float32))), (0, array)
        )
        return array.stack()

    agrees(function, X, gradient=False)


def test_maps_and_scans(agrees):
    def function(x):
        return [tf.map_fn(tf.reduce_sum, x), tf.scan(lambda a, b: a * b, x), tf.vectorized_map(tf.reduce_max, x)]

    agrees(function, X)
