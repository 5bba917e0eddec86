"""Sorting, ranking and top-k, with ties, signed zeros and infinities."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from openipu.tensorflow.stablehlo import lower

# The same examples in every run, and no limit on the first, which compiles.
FEW = settings(deadline=None, derandomize=True, max_examples=5)

VALUES = st.sampled_from([-np.inf, -2.0, -0.0, 0.0, 1.0, 1.0, 3.5, np.inf])


@FEW
@given(hnp.arrays(np.float32, (2, 7), elements=VALUES), st.sampled_from(["ASCENDING", "DESCENDING"]))
def test_floats_sort_stably(agrees, x, direction):
    def function(x):
        return [tf.sort(x, direction=direction), tf.argsort(x, direction=direction, stable=True)]

    agrees(function, x, compiled=True)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8])
def test_integers_sort(agrees, dtype):
    x = np.random.default_rng(0).integers(0, 9, (5, 4)).astype(dtype)
    agrees(lambda x: [tf.sort(x, 0), tf.sort(x, 0, "DESCENDING"), tf.argsort(x, 1)], x, gradient=False)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, ml_dtypes.bfloat16])
def test_top_k(agrees, dtype):
    x = np.random.default_rng(0).integers(0, 9, (5, 8)).astype(dtype)
    agrees(lambda x: tf.math.top_k(x, 3), x)


def test_searching(agrees):
    rows = np.sort(np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32), 1)
    agrees(
        lambda a, b: [tf.searchsorted(a, b), tf.searchsorted(a, b, "right")], rows, rows[:, ::2].copy(), gradient=False
    )


@pytest.fixture
def by_remainder():
    """A sort by another kind of comparison: by remainder of a division by three."""
    return """
    func.func @main(%a: tensor<7xi32>, %b: tensor<7xf32>) -> (tensor<7xi32>, tensor<7xf32>) {
      %s:2 = "stablehlo.sort"(%a, %b) <{dimension = 0 : i64, is_stable = true}> ({
      ^bb0(%x: tensor<i32>, %y: tensor<i32>, %p: tensor<f32>, %q: tensor<f32>):
        %three = stablehlo.constant dense<3> : tensor<i32>
        %u = stablehlo.remainder %x, %three : tensor<i32>
        %v = stablehlo.remainder %y, %three : tensor<i32>
        %c = stablehlo.compare LT, %u, %v : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }) : (tensor<7xi32>, tensor<7xf32>) -> (tensor<7xi32>, tensor<7xf32>)
      return %s#0, %s#1 : tensor<7xi32>, tensor<7xf32>
    }"""


def test_any_comparison_sorts_stably(by_remainder):
    a = np.array([5, 3, 1, 4, 0, 2, 6], np.int32)
    keys, values = jax.jit(lower(by_remainder))(a, a.astype(np.float32))
    order = np.argsort(a % 3, kind="stable")
    np.testing.assert_array_equal(keys, a[order])
    np.testing.assert_array_equal(values, a[order].astype(np.float32))


def test_two_keys_sort_lexicographically():
    text = """
    func.func @main(%a: tensor<6xi32>, %b: tensor<6xf32>) -> (tensor<6xi32>, tensor<6xf32>) {
      %s:2 = "stablehlo.sort"(%a, %b) <{dimension = 0 : i64, is_stable = true}> ({
      ^bb0(%x: tensor<i32>, %y: tensor<i32>, %p: tensor<f32>, %q: tensor<f32>):
        %e = stablehlo.compare EQ, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %f = stablehlo.compare GT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %g = stablehlo.compare LT, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %c = stablehlo.select %e, %f, %g : tensor<i1>, tensor<i1>
        stablehlo.return %c : tensor<i1>
      }) : (tensor<6xi32>, tensor<6xf32>) -> (tensor<6xi32>, tensor<6xf32>)
      return %s#0, %s#1 : tensor<6xi32>, tensor<6xf32>
    }"""
    a, b = np.array([1, 0, 1, 0, 1, 0], np.int32), np.array([1, 2, 3, 4, 5, 6], np.float32)
    first, second = jax.jit(lower(text))(a, b)
    np.testing.assert_array_equal(first, [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(second, [6, 4, 2, 5, 3, 1])
