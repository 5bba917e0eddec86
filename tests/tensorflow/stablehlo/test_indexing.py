"""Reading and writing at computed positions."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

# The same examples in every run, and no limit on the first, which compiles.
FEW = settings(deadline=None, derandomize=True, max_examples=5)


def _array(*shape, dtype=np.float32):
    return np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)


@FEW
@given(hnp.array_shapes(max_dims=3, max_side=4), hnp.array_shapes(max_dims=2, max_side=3), st.data())
def test_gathers_and_their_gradients(agrees, shape, index_shape, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    dtype = data.draw(st.sampled_from([np.int32, np.int64]))
    indices = data.draw(hnp.arrays(dtype, index_shape, elements=st.integers(0, shape[axis] - 1)))
    agrees(lambda x, i: tf.gather(x, i, axis=axis), _array(*shape), indices)


def test_batched_gathers(agrees):
    indices = np.array([[0, 2], [1, 1], [5, 3]], np.int32)
    agrees(
        lambda x, i: [tf.gather(x, i, axis=1, batch_dims=1), tf.gather_nd(x, i[..., None], batch_dims=1)],
        _array(3, 6, 2),
        indices,
    )


def test_gathers_of_points(agrees):
    agrees(tf.gather_nd, _array(4, 5, 2), np.array([[0, 1], [3, 4], [3, 4]], np.int32))


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_scatters(agrees, dtype):
    at = np.array([[1], [3], [0]], np.int32)

    def function(x, at, new):
        parts = [
            tf.scatter_nd(at, new, (6, 4)),
            tf.tensor_scatter_nd_update(x, at, new),
            tf.tensor_scatter_nd_add(x, at, new),
        ]
        return [
            *parts,
            tf.tensor_scatter_nd_sub(x, at, new),
            tf.tensor_scatter_nd_max(x, at, new),
            tf.tensor_scatter_nd_min(x, at, new),
        ]

    agrees(function, _array(5, 4, dtype=dtype), at, _array(3, 4, dtype=dtype))


@FEW
@given(hnp.arrays(np.int32, 6, elements=st.integers(-1, 3)))
def test_segments(agrees, segments):
    def function(x, at):
        kinds = [tf.math.unsorted_segment_sum, tf.math.unsorted_segment_max, tf.math.unsorted_segment_min]
        return [kind(x, at, 4) for kind in [*kinds, tf.math.unsorted_segment_mean, tf.math.unsorted_segment_prod]]

    agrees(function, np.abs(_array(6, 3)) + 1, segments)


@FEW
@given(st.integers(0, 3), st.integers(0, 2))
def test_slices_at_computed_positions(agrees, row, column):
    def function(x, row, column):
        return tf.slice(x, [row, column], [2, 3])

    agrees(function, _array(5, 5), np.int32(row), np.int32(column))


def test_positions_outside_are_dropped_or_clamped_as_by_xla(agrees):
    at = np.array([[7], [-3], [1]], np.int32)
    function = lambda x, at: [tf.gather_nd(x, at), tf.tensor_scatter_nd_add(x, at, x[:3])]  # noqa: E731
    agrees(function, _array(5, 4), at, gradient=False, compiled=True)


def test_scatters_of_booleans(agrees):
    at = np.array([[1], [3]], np.int32)
    agrees(lambda x, at: tf.tensor_scatter_nd_update(x, at, [True, True]), np.zeros(5, np.bool_), at, gradient=False)


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
def test_resized_images(agrees, method):
    agrees(lambda x: tf.image.resize(x, (5, 7), method), _array(1, 3, 4, 2), tolerance=1e-4)
