"""Re-arranging values: reshape, transpose, slice, pad, concatenate, and so on."""

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

# The same examples in every run, and no limit on the first, which compiles.
FEW = settings(deadline=None, derandomize=True, max_examples=5)

DTYPES = st.sampled_from([np.float32, np.float16, np.int32, np.int64, np.bool_, np.uint8])


def _array(shape, dtype):
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 7).astype(dtype)


@FEW
@given(hnp.array_shapes(max_dims=4, max_side=4), DTYPES, st.data())
def test_transposes_reversals_and_rolls(agrees, shape, dtype, data):
    order = data.draw(st.permutations(range(len(shape))))
    axis = data.draw(st.integers(0, len(shape) - 1))

    def function(x):
        return [
            tf.transpose(x, order),
            tf.reverse(x, [axis]),
            tf.roll(x, 2, axis),
            tf.expand_dims(x, axis),
            tf.tile(x, shape),
        ]

    agrees(function, _array(shape, dtype))


@FEW
@given(hnp.array_shapes(min_dims=1, max_dims=3, min_side=2, max_side=6), DTYPES, st.data())
def test_slices_with_strides(agrees, shape, dtype, data):
    cuts = tuple(data.draw(st.slices(size)) for size in shape)
    agrees(lambda x: x[cuts], _array(shape, dtype))


@FEW
@given(hnp.array_shapes(max_dims=3, min_side=2, max_side=4), DTYPES, st.data())
def test_padding_and_concatenation(agrees, shape, dtype, data):
    amounts = [(data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))) for _ in shape]
    axis = data.draw(st.integers(0, len(shape) - 1))
    modes = ("CONSTANT",) if dtype in (np.bool_, np.uint8) else ("CONSTANT", "REFLECT", "SYMMETRIC")

    def function(x):
        whole = [tf.pad(x, amounts, mode) for mode in modes]
        return [*whole, tf.concat([x, x, x], axis), tf.stack([x, x], axis), *tf.unstack(x, axis=axis)]

    agrees(function, _array(shape, dtype))


@FEW
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3))
def test_broadcasting(agrees, shapes):
    a, b = shapes.input_shapes
    agrees(
        lambda x, y: [x + y, x * y, tf.broadcast_to(x, shapes.result_shape)],
        _array(a, np.float32),
        _array(b, np.float32),
    )


def test_ranges_and_identities(agrees):
    def function(x):
        return [
            tf.range(5),
            tf.linspace(0.0, 1.0, 5),
            tf.eye(3),
            tf.one_hot([1, 2], 4),
            tf.linalg.diag(x),
            tf.meshgrid(x, x),
        ]

    agrees(function, _array((3,), np.float32))


def test_space_and_depth(agrees):
    x = _array((2, 4, 4, 4), np.float32)
    agrees(
        lambda x: [
            tf.nn.space_to_depth(x, 2),
            tf.nn.depth_to_space(x, 2),
            tf.space_to_batch(x, [2, 2], [[0, 0], [0, 0]]),
        ],
        x,
    )


def test_empty_arrays(agrees):
    agrees(lambda x: [x + 1, tf.reduce_sum(x), tf.concat([x, x], 0)], np.zeros((0, 3), np.float32))
