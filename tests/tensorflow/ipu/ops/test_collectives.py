"""Communication between replicas, against NumPy on the stacked values."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

REPLICAS = (1, 2, 4)
REDUCTIONS = {
    "ADD": lambda x: x.sum(0),
    "MUL": lambda x: x.prod(0),
    "MIN": lambda x: x.min(0),
    "MAX": lambda x: x.max(0),
    "LOGICAL_AND": lambda x: (x != 0).all(0),
    "LOGICAL_OR": lambda x: (x != 0).any(0),
    "SQUARE_ADD": lambda x: (x * x).sum(0),
    "MEAN": lambda x: x.mean(0),
}


def groups(values, size):
    """The values of each replica's group: [replica, member, ...]."""
    return np.stack([values[i // size * size :][:size] for i in range(len(values))])


@pytest.mark.parametrize("replicas", REPLICAS)
def test_sum_and_mean_over_all_replicas_reach_every_replica(on_replicas, rng, replicas):
    x = rng.normal(size=(replicas, 3, 2)).astype("float32")
    total, mean = on_replicas(
        replicas, lambda v: (ipu.cross_replica_ops.cross_replica_sum(v), ipu.cross_replica_ops.cross_replica_mean(v)), x
    )
    np.testing.assert_allclose(total, np.broadcast_to(x.sum(0), x.shape), rtol=1e-5)
    np.testing.assert_allclose(mean, np.broadcast_to(x.mean(0), x.shape), rtol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_groups_of_consecutive_replicas_are_reduced_apart(on_replicas, rng, size):
    x = rng.normal(size=(4, 5)).astype("float32")

    def both(v):
        ops = ipu.cross_replica_ops
        return ops.cross_replica_sum(v, size), ops.cross_replica_mean(v, replica_group_size=size)

    total, mean = on_replicas(4, both, x)
    np.testing.assert_allclose(total, groups(x, size).sum(1), rtol=1e-5)
    np.testing.assert_allclose(mean, groups(x, size).mean(1), rtol=1e-5)


@pytest.mark.parametrize("size", [None, 2])
def test_the_gradient_of_a_sum_is_the_sum_of_gradients(on_replicas, rng, size):
    x, weight = rng.normal(size=(2, 4, 3)).astype("float32")

    def gradient(v, w):
        with tf.GradientTape() as tape:
            tape.watch(v)
            loss = tf.reduce_sum(ipu.cross_replica_ops.cross_replica_sum(v, size) * w)
        return tape.gradient(loss, v)

    received = on_replicas(4, gradient, x, weight)
    np.testing.assert_allclose(received, groups(weight, size or 4).sum(1), rtol=1e-5)


def test_the_mean_of_large_half_precision_values_stays_finite(on_replicas):
    x = np.full((4, 2), 65504, "float16")
    np.testing.assert_array_equal(on_replicas(4, ipu.cross_replica_ops.cross_replica_mean, x), x)


def test_whole_numbers_are_summed_and_averaged(on_replicas):
    x = np.array([[1, -3], [4, -4], [2, 9], [4, 5]], "int32")
    ops = ipu.cross_replica_ops
    total, mean = on_replicas(4, lambda v: (ops.cross_replica_sum(v), ops.cross_replica_mean(v)), x)
    np.testing.assert_array_equal(total[0], [11, 7])
    np.testing.assert_array_equal(mean[3], [2, 1])


def test_a_mean_has_no_gradient(on_replicas):
    def gradient(v):
        with tf.GradientTape() as tape:
            tape.watch(v)
            loss = ipu.cross_replica_ops.cross_replica_mean(v)
        return tape.gradient(loss, v)

    # TensorFlow wraps the LookupError that says so.
    with pytest.raises(Exception, match="no entry for: XlaCustomCall"):
        on_replicas(2, gradient, np.ones((2, 3), "float32"))


@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.parametrize(("split", "concat"), [(0, 1), (1, 0), (-1, -1)])
def test_all_to_all_sends_slice_j_to_replica_j(on_replicas, rng, replicas, split, concat):
    x = rng.normal(size=(replicas, 4, 8)).astype("float32")
    received = on_replicas(replicas, lambda v: ipu.all_to_all_op.all_to_all(v, split, concat, replicas), x)
    slices = [np.split(value, replicas, axis=split) for value in x]
    expected = np.stack([np.concatenate([s[i] for s in slices], axis=concat) for i in range(replicas)])
    np.testing.assert_array_equal(received, expected)


def test_the_gradient_of_all_to_all_comes_back_the_same_way(on_replicas, rng):
    x = rng.normal(size=(2, 4, 6)).astype("float32")
    weight = rng.normal(size=(2, 8, 3)).astype("float32")

    def gradient(v, w):
        with tf.GradientTape() as tape:
            tape.watch(v)
            loss = tf.reduce_sum(ipu.all_to_all_op.all_to_all(v, 1, 0, 2) * w)
        return tape.gradient(loss, v)

    expected = np.stack([np.concatenate([weight[j, 4 * i : 4 * i + 4] for j in range(2)], 1) for i in range(2)])
    np.testing.assert_allclose(on_replicas(2, gradient, x, weight), expected)


@pytest.mark.parametrize("replicas", REPLICAS)
def test_every_replica_gathers_the_values_of_all(on_replicas, rng, replicas):
    x = rng.normal(size=(replicas, 3)).astype("float32")
    received = on_replicas(replicas, lambda v: ipu.all_to_all_op.all_gather([v, v[0]], replicas), x)
    np.testing.assert_array_equal(received[0], np.broadcast_to(x, (replicas, replicas, 3)))
    np.testing.assert_array_equal(received[1], np.broadcast_to(x[:, 0], (replicas, replicas)))


@pytest.mark.parametrize("replicas", REPLICAS)
def test_reduce_scatter_leaves_a_padded_part_on_every_replica(on_replicas, replicas):
    x = np.arange(1, 1 + 7 * replicas, dtype="float32").reshape(replicas, 7) % 5

    def scatter(v):
        return {n: ipu.reduce_scatter_op.reduce_scatter(v, replicas, f"COLLECTIVE_OP_{n}") for n in REDUCTIONS}

    received = on_replicas(replicas, scatter, x)
    length = -(-7 // replicas)
    padded = np.pad(x, [(0, 0), (0, length * replicas - 7)])
    for name, reduce in REDUCTIONS.items():
        expected = reduce(padded).reshape(replicas, length)
        np.testing.assert_allclose(received[name], expected, rtol=1e-6, err_msg=name)


def test_the_local_reduction_keeps_the_own_part(on_replicas):
    x = np.arange(8, dtype="float32").reshape(2, 4)
    received = on_replicas(2, lambda v: ipu.reduce_scatter_op.reduce_scatter(v, 2, "COLLECTIVE_OP_LOCAL"), x)
    np.testing.assert_array_equal(received, [[0, 1], [6, 7]])


@pytest.mark.parametrize("replicas", REPLICAS)
def test_replicas_know_their_number(on_replicas, replicas):
    received = on_replicas(replicas, lambda: ipu.replication_ops.replication_index())
    np.testing.assert_array_equal(received, np.arange(replicas))
    assert received.dtype == np.int32


def test_replicas_have_their_own_random_numbers(on_replicas):
    received = on_replicas(4, lambda v: ipu.rand_ops.dropout(v), np.ones((4, 64), "float32"))
    assert len({tuple(row) for row in received}) == 4


def test_values_promised_to_be_equal_pass_through(on_replicas):
    x = np.ones((2, 3), "float32")
    received = on_replicas(2, lambda v: ipu.cross_replica_ops.assume_equal_across_replicas({"a": [v]}), x)
    np.testing.assert_array_equal(received["a"][0], x)


def test_wrong_numbers_of_replicas_are_refused(on_replicas):
    x = np.ones((4, 4), "float32")
    with pytest.raises(ValueError, match=r"replica_group_size=3, 4 replicas\. Use one of 1, 2, 4"):
        on_replicas(4, lambda v: ipu.cross_replica_ops.cross_replica_sum(v, 3), x)
    with pytest.raises(ValueError, match=r"Received: replication_factor=2\. Pass 4"):
        on_replicas(4, lambda v: ipu.all_to_all_op.all_gather(v, 2), x)
    with pytest.raises(ValueError, match="op must be one of COLLECTIVE_OP_ADD"):
        on_replicas(4, lambda v: ipu.reduce_scatter_op.reduce_scatter(v, 4, "ADDITION"), x)
    with pytest.raises(ValueError, match="multiple of replication_factor"):
        on_replicas(4, lambda v: ipu.all_to_all_op.all_to_all(v[:3], 0, 0, 4), x)


def test_collectives_outside_of_programs_are_refused():
    with pytest.raises(RuntimeError, match="cross_replica_sum runs in programs for the IPU only"):
        ipu.cross_replica_ops.cross_replica_sum(tf.ones([2]))


def test_layers_may_communicate_while_keras_builds_them_with_an_unknown_batch(configured):
    class Exchange(tf.keras.layers.Layer):
        def call(self, x):
            ops = ipu.cross_replica_ops
            gathered = ipu.all_to_all_op.all_gather(x, 2)
            swapped = ipu.all_to_all_op.all_to_all(x, 1, 0, 2)
            return tf.concat([ops.cross_replica_sum(x), gathered[1], tf.reshape(swapped, tf.shape(x))], 1)

    x = np.arange(16, dtype="float32").reshape(8, 2)
    with configured(2) as strategy, strategy.scope():
        inputs = tf.keras.Input([2])
        model = tf.keras.Model(inputs, Exchange()(inputs))
        received = model.predict(x, batch_size=2, verbose=0)
    # Micro-batches go to the replicas in turn.
    pairs = x.reshape(2, 2, 2, 2)
    total = np.repeat(pairs.sum(1, keepdims=True), 2, axis=1).reshape(8, 2)
    second = np.repeat(pairs[:, 1:], 2, axis=1).reshape(8, 2)
    np.testing.assert_array_equal(received[:, :4], np.concatenate([total, second], 1))


def test_replicas_communicate_inside_loops_and_branches(on_replicas):
    def program(x):
        total = tf.zeros_like(x)
        for step in tf.range(3):
            part = ipu.cross_replica_ops.cross_replica_sum(x, 2)
            if step > 0:
                part *= tf.cast(ipu.replication_ops.replication_index() + 1, tf.float32)
            total += part
        return total

    x = np.array([[1.0], [2.0], [3.0], [4.0]], "float32")
    received = on_replicas(4, tf.autograph.experimental.do_not_convert(tf.function(program)), x)
    np.testing.assert_allclose(received[:, 0], [3 * 3, 3 * 5, 7 * 7, 7 * 9])
