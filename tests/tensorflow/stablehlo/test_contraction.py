"""Matrix products and convolutions over shapes, strides, dilations and groups."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

# The same examples in every run, and no limit on the first, which compiles.
FEW = settings(deadline=None, derandomize=True, max_examples=5)

SIDES = st.integers(1, 4)


def _array(*shape, dtype=np.float32):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


@FEW
@given(SIDES, SIDES, SIDES, SIDES, st.booleans(), st.booleans())
def test_products_of_matrices(agrees, batch, m, k, n, turn_a, turn_b):
    a = _array(batch, *((k, m) if turn_a else (m, k)))
    b = _array(batch, *((n, k) if turn_b else (k, n)))
    agrees(lambda a, b: [tf.matmul(a, b, turn_a, turn_b), tf.matmul(a[0], b[0], turn_a, turn_b)], a, b)


@pytest.mark.parametrize(
    "equation", ["ab,bc->ca", "abc,abd->acd", "abc,dc->bad", "ab,ab->", "ab,cd->acbd", "abc,abc->b"]
)
def test_einsums(agrees, equation):
    sizes = dict(zip("abcd", (2, 3, 4, 5), strict=True))
    shapes = [tuple(sizes[letter] for letter in term) for term in equation.split("->")[0].split(",")]
    agrees(lambda a, b: tf.einsum(equation, a, b), *(_array(*shape) for shape in shapes))


@pytest.mark.parametrize("dtype", [np.int32, np.float64, np.float16])
def test_products_of_other_types(agrees, dtype):
    agrees(tf.matmul, (3 * _array(3, 4)).astype(dtype), (3 * _array(4, 2)).astype(dtype))


@FEW
@given(st.data())
def test_convolutions_in_two_dimensions(agrees, data):
    kernel = (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)))
    dilation = data.draw(st.integers(1, 2))
    stride = 1 if dilation > 1 else data.draw(st.integers(1, 3))
    groups = data.draw(st.sampled_from([1, 2]))
    padding = data.draw(st.sampled_from(["SAME", "VALID"]))
    x, w = _array(2, 6, 7, 2 * groups), _array(*kernel, 2, 3 * groups)
    # Eager TensorFlow has no CPU gradient for grouped convolutions.
    agrees(lambda x, w: tf.nn.conv2d(x, w, stride, padding, dilations=dilation), x, w, compiled=True)


@FEW
@given(st.integers(1, 3), st.integers(1, 2), st.sampled_from(["SAME", "VALID"]))
def test_depthwise_convolutions(agrees, kernel, stride, padding):
    x, w = _array(2, 6, 7, 3), _array(kernel, kernel, 3, 2)
    agrees(lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, stride, stride, 1], padding), x, w)


@FEW
@given(st.integers(1, 3), st.integers(1, 3), st.sampled_from(["SAME", "VALID"]))
def test_transposed_convolutions(agrees, kernel, stride, padding):
    x, w = _array(2, 4, 5, 2), _array(kernel, kernel, 3, 2)
    rows, columns = (n * stride if padding == "SAME" else n * stride + max(kernel - stride, 0) for n in (4, 5))
    agrees(lambda x, w: tf.nn.conv2d_transpose(x, w, (2, rows, columns, 3), stride, padding), x, w)


@FEW
@given(st.integers(1, 2), st.sampled_from(["SAME", "VALID"]))
def test_convolutions_in_one_and_three_dimensions(agrees, stride, padding):
    agrees(lambda x, w: tf.nn.conv1d(x, w, stride, padding), _array(2, 7, 3), _array(3, 3, 4))
    agrees(
        lambda x, w: tf.nn.conv3d(x, w, [1, stride, stride, stride, 1], padding),
        _array(1, 4, 5, 4, 2),
        _array(2, 2, 2, 2, 3),
    )
