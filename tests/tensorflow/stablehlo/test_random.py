"""Random numbers: the same bits as TensorFlow's where it has a seed, a key's own where it has none."""

import jax
import numpy as np
import pytest
import tensorflow as tf

from openipu.tensorflow.stablehlo import lower

SEED = np.array([3, 7], np.int32)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.uint32, tf.uint64])
def test_seeded_numbers_are_tensorflows(agrees, dtype):
    whole = {"minval": None, "maxval": None} if dtype.is_integer else {}
    agrees(
        lambda s: tf.random.stateless_uniform((3, 7), s, dtype=dtype, **whole),
        SEED,
        gradient=False,
        compiled=True,
        tolerance=0,
    )


def test_seeded_distributions_are_tensorflows(agrees):
    def function(seed):
        kinds = [tf.random.stateless_normal, tf.random.stateless_truncated_normal]
        drawn = [kind((3, 4), seed) for kind in kinds]
        whole = tf.random.stateless_uniform((9,), seed, 0, 100, tf.int32)
        return [*drawn, whole, tf.random.stateless_categorical(tf.zeros((2, 3)), 4, seed)]

    agrees(function, SEED, gradient=False, compiled=True)


def test_seeded_numbers_by_threefry(agrees):
    agrees(lambda s: tf.random.stateless_uniform((5,), s, alg="threefry"), SEED, gradient=False, compiled=True)


@pytest.fixture
def lowered(captured):
    return lambda function, *arrays: lower(captured(function, *arrays)[0])


def _draw(low, key, *args):
    with jax.enable_x64(True):
        return [np.asarray(x) for x in jax.jit(lambda k: low(*args, key=k))(key)]


def test_stateful_draws_come_from_the_key(lowered):
    low = lowered(
        lambda: [
            tf.random.uniform((2000,), 1.0, 3.0),
            tf.random.normal((2000,), 5.0, 2.0),
            tf.random.uniform((50,), 0, 9, tf.int32),
        ]
    )
    assert low.needs_key
    uniform, normal, whole = _draw(low, jax.random.key(0))
    assert 1.0 <= uniform.min() < 1.1 < 2.9 < uniform.max() < 3.0
    assert abs(normal.mean() - 5) < 0.2
    assert abs(normal.std() - 2) < 0.2
    assert set(whole.tolist()) == set(range(9))
    np.testing.assert_array_equal(uniform, _draw(low, jax.random.key(0))[0])
    assert not np.array_equal(uniform, _draw(low, jax.random.key(1))[0])


def test_raw_keys_are_accepted(lowered):
    low = lowered(lambda: tf.random.uniform((4,)))
    np.testing.assert_array_equal(_draw(low, jax.random.key(5))[0], _draw(low, jax.random.PRNGKey(5))[0])


def test_two_draws_differ(lowered):
    first, second = _draw(lowered(lambda: [tf.random.uniform((9,)), tf.random.uniform((9,))]), jax.random.key(0))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("from_data", [True, False])
def test_iterations_of_a_loop_draw_different_numbers(lowered, from_data):
    def function(n):
        array = tf.TensorArray(tf.float32, 3, element_shape=(5,))
        limit = n if from_data else 3
        return tf.while_loop(
            lambda i, a: i < limit, lambda i, a: (i + 1, a.write(i, tf.random.uniform((5,)))), (0, array)
        )[1].stack()

    count = np.int32(3)
    (rows,) = _draw(lowered(function, count), jax.random.key(0), jax.numpy.asarray(count))
    assert len({row.tobytes() for row in rows}) == 3


def test_a_missing_key_is_refused(lowered):
    with jax.enable_x64(True), pytest.raises(ValueError, match="random key"):
        lowered(lambda: tf.random.uniform((4,)))()


def test_dropout_keeps_its_scale(lowered):
    low = lowered(lambda x: tf.nn.dropout(x, 0.25), np.ones(4000, np.float32))
    (kept,) = _draw(low, jax.random.key(0), jax.numpy.ones(4000, np.float32))
    assert set(np.unique(kept).round(4)) == {np.float32(0), np.float32(1.3333)}
    assert 0.7 < (kept > 0).mean() < 0.8
