"""Collectives between the shards of one replica, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ipu import within_replica_ops

SHARDS = [np.array([1, 2, 3], "float32"), np.array([10, 20], "float32"), np.array(5, "float32")]


def test_every_shard_gets_the_reduction_of_all(on_device):
    results = on_device(lambda *s: within_replica_ops.all_reduce(list(s), "COLLECTIVE_OP_ADD"), *SHARDS)
    np.testing.assert_array_equal(results, [[16, 22, 3]] * 3)
    results = on_device(lambda *s: within_replica_ops.all_reduce(list(s), "COLLECTIVE_OP_MAX"), *SHARDS)
    np.testing.assert_array_equal(results, [[10, 20, 3]] * 3)


def test_parts_of_the_reduction_make_up_the_whole(on_device):
    results = on_device(lambda *s: within_replica_ops.reduce_scatter(list(s), "COLLECTIVE_OP_ADD"), *SHARDS[:2])
    np.testing.assert_array_equal(np.concatenate(results), [11, 22, 3, 0])


@pytest.mark.parametrize("axis", [0, 1])
def test_every_shard_gathers_all(on_device, rng, axis):
    shards = [rng.normal(size=(2, 2)).astype("float32") for _ in range(3)]
    results = on_device(lambda *s: within_replica_ops.all_gather(list(s), axis), *shards)
    np.testing.assert_array_equal(results, [np.concatenate(shards, axis)] * 3)


def test_gradients_of_gather_and_reduce(on_device, rng):
    shards = [rng.normal(size=3).astype("float32") for _ in range(2)]
    weights = [rng.normal(size=6).astype("float32") for _ in range(2)]

    def gradients(a, b, v, w):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([a, b])
            x, y = within_replica_ops.all_gather([a, b])
            gathered = tf.reduce_sum(x * v) + tf.reduce_sum(y * w)
            x, y = within_replica_ops.all_reduce([a, b], "COLLECTIVE_OP_ADD")
            reduced = tf.reduce_sum(x * v[:3]) + tf.reduce_sum(y * w[:3])
        return tape.gradient(gathered, [a, b]), tape.gradient(reduced, [a, b])

    gathered, reduced = on_device(gradients, *shards, *weights)
    total = weights[0] + weights[1]
    np.testing.assert_allclose(gathered, [total[:3], total[3:]], rtol=1e-6)
    np.testing.assert_allclose(reduced, [total[:3]] * 2, rtol=1e-6)


def test_lists_that_do_not_fit_are_refused():
    x = tf.ones([2])
    with pytest.raises(ValueError, match="duplicate"):
        within_replica_ops.all_gather([x, x])
    with pytest.raises(ValueError, match="same type"):
        within_replica_ops.all_gather([x, tf.ones([2], tf.int32)])
    with pytest.raises(ValueError, match="same rank"):
        within_replica_ops.all_gather([x, tf.ones([2, 2])])
    with pytest.raises(ValueError, match="all axes but axis 0"):
        within_replica_ops.all_gather([tf.ones([2, 2]), tf.ones([2, 3])])
