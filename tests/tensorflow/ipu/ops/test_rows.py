"""Operations on rows of tensors, against NumPy loops."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ipu import embedding_ops, math_ops, slicing_ops


def with_gradient(function, index=0):
    """The result, and the gradient of a weighted sum of it with regard to one argument."""

    def both(*args):
        with tf.GradientTape() as tape:
            tape.watch(args[index])
            y = function(*args)
            weight = tf.reshape(tf.range(1.0, 1.0 + y.shape.num_elements()), y.shape)
            loss = tf.reduce_sum(y * weight)
        return y, tape.gradient(loss, args[index])

    return both


def weights(shape):
    return np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape).astype("float32")


@pytest.mark.parametrize("factor", [1, 3])
@pytest.mark.parametrize("shape", [(4,), (2, 3)])
def test_embeddings_are_rows_and_their_gradient_is_dense(on_device, rng, factor, shape):
    table = rng.normal(size=(6, 5)).astype("float32")
    ids = rng.integers(0, 6, shape).astype("int32")
    value, gradient = on_device(with_gradient(lambda t, i: embedding_ops.embedding_lookup(t, i, factor)), table, ids)
    np.testing.assert_array_equal(value, table[ids])
    expected = np.zeros_like(table)
    np.add.at(expected, ids, weights(value.shape))
    np.testing.assert_allclose(gradient, expected)


def test_tables_that_cannot_be_split_are_refused():
    with pytest.raises(ValueError, match=r"serialization_factor \(4\) must divide .* params \(6\)"):
        embedding_ops.embedding_lookup(tf.ones([6, 2]), [0], 4)
    with pytest.raises(ValueError, match="serialization_factor=0"):
        embedding_ops.embedding_lookup(tf.ones([6, 2]), [0], 0)


def copied(dst, src, counts, sources, targets, zero):
    """The result of a sequence slice, and where each of its rows comes from."""
    result = np.zeros_like(dst) if zero else dst.copy()
    origin = np.full(len(dst), -1)
    for count, source, target in zip(counts, sources, targets, strict=True):
        result[target : target + count] = src[source : source + count]
        origin[target : target + count] = np.arange(source, source + count)
    return result, origin


@pytest.mark.parametrize("zero", [True, False])
def test_sequences_are_copied_and_gradients_go_back(on_device, rng, zero):
    dst, src = rng.normal(size=(9, 2)).astype("float32"), rng.normal(size=(7, 2)).astype("float32")
    numbers = np.array([[2, 3, 1], [0, 4, 2], [5, 0, 8]], "int32")

    def function(s, d, n):
        return slicing_ops.sequence_slice(d, s, n[0], n[1], n[2], zero)

    value, gradient = on_device(with_gradient(function), src, dst, numbers)
    expected, origin = copied(dst, src, *numbers, zero)
    np.testing.assert_array_equal(value, expected)
    back = np.zeros_like(src)
    np.add.at(back, origin[origin >= 0], weights(dst.shape)[origin >= 0])
    np.testing.assert_allclose(gradient, back)


def test_unpacked_sequences_can_be_packed_again(on_device, rng):
    padded = rng.normal(size=(8, 3)).astype("float32")
    counts, offsets = np.array([2, 3], "int32"), np.array([0, 4], "int32")

    def function(x, n, o):
        packed = slicing_ops.sequence_slice_unpack(x, n, o, 6)
        return packed, slicing_ops.sequence_slice_pack(tf.ones_like(x), packed, n, o, False)

    packed, again = on_device(function, padded, counts, offsets)
    np.testing.assert_array_equal(packed, np.concatenate([padded[:2], padded[4:7], np.zeros((1, 3))]))
    expected = np.ones_like(padded)
    expected[:2], expected[4:7] = padded[:2], padded[4:7]
    np.testing.assert_array_equal(again, expected)


def test_sequences_that_do_not_fit_are_refused():
    x = tf.ones([4, 2])
    with pytest.raises(ValueError, match="matching, nonzero shapes of rank 1"):
        slicing_ops.sequence_slice(x, x, [1, 2], [0], [0], True)
    with pytest.raises(ValueError, match="inner shapes must match"):
        slicing_ops.sequence_slice(tf.ones([4, 3]), x, [1], [0], [0], True)


def test_rows_of_a_segment_are_summed(on_device, rng):
    data = rng.normal(size=(6, 2)).astype("float32")
    ids = np.array([0, 0, 2, 2, 2, 4], "int32")
    expected = np.zeros((5, 2), "float32")
    np.add.at(expected, ids, data)
    received = on_device(lambda d, i: math_ops.segment_sum(d, i, 5), data, ids)
    np.testing.assert_allclose(received, expected, rtol=1e-5)


@pytest.mark.parametrize("dimension", ["a_columns", "a_rows_b_columns", "b_rows"])
@pytest.mark.parametrize(("ta", "tb"), [(False, False), (True, False), (False, True)])
def test_products_in_pieces_are_products(on_device, rng, dimension, ta, tb):
    a = rng.normal(size=(2, 6, 4) if ta else (2, 4, 6)).astype("float32")
    b = rng.normal(size=(8, 6) if tb else (6, 8)).astype("float32")
    value, gradient = on_device(
        with_gradient(lambda x, y: math_ops.serialized_matmul(x, y, 2, dimension, ta, tb)), a, b
    )
    left, right = a.swapaxes(1, 2) if ta else a, b.T if tb else b
    np.testing.assert_allclose(value, left @ right, rtol=1e-4)
    expected = weights(value.shape) @ right.T
    np.testing.assert_allclose(gradient, expected.swapaxes(1, 2) if ta else expected, rtol=1e-4, atol=1e-3)


def test_pieces_that_do_not_fit_are_refused():
    a, b = tf.ones([4, 6]), tf.ones([6, 8])
    with pytest.raises(ValueError, match="Invalid serialization_dimension=rows, expected one of: 'a_columns'"):
        math_ops.serialized_matmul(a, b, 2, "rows")
    with pytest.raises(ValueError, match="'a_rows_b_columns', 6"):
        math_ops.serialized_matmul(a, b, 4, "a_rows_b_columns")
    with pytest.raises(ValueError, match="rank of at least 2"):
        math_ops.serialized_matmul(tf.ones([4]), b, 1, "b_rows")
