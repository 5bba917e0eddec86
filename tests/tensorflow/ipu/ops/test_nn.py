"""Activations and losses, against NumPy, SciPy-free formulas and TensorFlow's own kernels."""

import math

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ipu import nn_ops, rand_ops


def derivative(function, x, step=1e-3):
    wide = x.astype("float64")
    return (function(wide + step) - function(wide - step)) / (2 * step)


ERF = np.vectorize(math.erf)
ACTIVATIONS = {
    "gelu": (nn_ops.gelu, lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))),
    "exact gelu": (lambda x: nn_ops.gelu(x, False), lambda x: 0.5 * x * (1 + ERF(x / math.sqrt(2)))),
    "hard_sigmoid": (nn_ops.hard_sigmoid, lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    "swish": (nn_ops.swish, lambda x: x / (1 + np.exp(-x))),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_their_derivatives(on_device, name):
    function, reference = ACTIVATIONS[name]
    x = np.linspace(-4, 4, 33, dtype="float32") + 0.01

    def both(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return y, tape.gradient(y, x)

    value, gradient = on_device(both, x)
    np.testing.assert_allclose(value, reference(x.astype("float64")), atol=1e-5)
    np.testing.assert_allclose(gradient, derivative(reference, x), atol=1e-3)


@pytest.mark.parametrize("stable", [True, False])
def test_softmax_is_over_the_last_axis(on_device, rng, stable):
    x = rng.normal(size=(3, 4)).astype("float32")
    expected = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    np.testing.assert_allclose(on_device(lambda v: nn_ops.softmax(v, stable), x), expected, rtol=1e-5)


def test_parallel_convolutions_are_plain_calls(on_device, rng):
    x, kernel = rng.normal(size=(1, 5, 5, 2)).astype("float32"), rng.normal(size=(3, 3, 2, 4)).astype("float32")

    @nn_ops.multi_conv(options={"planType": "PARALLEL"})
    def two(x, k):
        return tf.nn.conv2d(x, k, 1, "SAME"), tf.nn.conv2d(2 * x, k, 1, "SAME")

    first, second = on_device(two, x, kernel)
    np.testing.assert_allclose(first, tf.nn.conv2d(x, kernel, 1, "SAME"), atol=1e-4)
    np.testing.assert_allclose(second, 2 * first, atol=1e-4)


@pytest.mark.parametrize("blank", [0, 4])
def test_ctc_loss_and_gradient_are_those_of_tensorflow(on_device, rng, blank):
    logits = rng.normal(size=(7, 3, 5)).astype("float32")
    labels = np.array([[1, 1, 2], [3, 2, 0], [2, 0, 0]], "int32")
    if blank == 0:
        labels = np.where(labels == 0, 1, labels)
    lengths, times = np.array([3, 2, 1], "int32"), np.array([7, 6, 3], "int32")

    def ours(x, y, n, t):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = nn_ops.ctc_loss_v2(y, x, n, t, blank)
        return loss, tape.gradient(loss, x)

    def theirs(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.nn.ctc_loss(labels, x, lengths, times, blank_index=blank)
        return loss, tape.gradient(loss, x)

    # One of the two on the device, where compiling takes longest.
    run = on_device if blank else (lambda f, *arrays: f(*map(tf.constant, arrays)))
    loss, gradient = run(ours, logits, labels, lengths, times)
    expected_loss, expected_gradient = theirs(tf.constant(logits))
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-4)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-4)


def test_ctc_loss_takes_logarithms_of_probabilities(rng):
    logits = tf.constant(rng.normal(size=(5, 2, 4)).astype("float32"))
    labels, lengths, times = [[1, 2], [3, 1]], [2, 1], [5, 4]
    expected = nn_ops.ctc_loss_v2(labels, logits, lengths, times, 0)
    received = nn_ops.ctc_loss_with_log_probs(labels, tf.nn.log_softmax(logits), lengths, times, 0)
    np.testing.assert_allclose(received, expected, rtol=1e-5)
    with pytest.raises(ValueError, match="out_dtype cannot be float16 when dtype of logits is float32"):
        nn_ops.ctc_loss_v2(labels, logits, lengths, times, 0, out_dtype=tf.float16)
    with pytest.raises(ValueError, match="blank_index=4"):
        nn_ops.ctc_loss_v2(labels, logits, lengths, times, 4)


@pytest.mark.parametrize("true", [1, 2])
@pytest.mark.parametrize("name", ["sampled_softmax_loss", "nce_loss"])
def test_sampled_losses_are_those_of_tensorflow(on_device, rng, name, true):
    weights, biases = rng.normal(size=(10, 4)).astype("float32"), rng.normal(size=10).astype("float32")
    inputs, labels = rng.normal(size=(3, 4)).astype("float32"), rng.integers(0, 10, (3, true))
    sampled = (np.array([1, 5, 7]), np.full((3, true), 0.4, "float32"), np.array([0.5, 0.2, 0.1], "float32"))

    def gradient(function, w, b, x):
        with tf.GradientTape() as tape:
            tape.watch([w, x])
            loss = function(w, b, labels, x, 3, 10, num_true=true, sampled_values=sampled)
        return loss, [tf.convert_to_tensor(g) for g in tape.gradient(loss, [w, x])]

    received = on_device(lambda *args: gradient(getattr(nn_ops, name), *args), weights, biases, inputs)
    expected = gradient(getattr(tf.nn, name), *(tf.constant(a) for a in (weights, biases, inputs)))
    np.testing.assert_allclose(received[0], expected[0], rtol=1e-4)
    for ours, theirs in zip(received[1], expected[1], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_sampled_classes_differ_and_follow_the_log_uniform_law(on_device):
    from openipu.tensorflow.ops import sampled_losses

    labels = tf.constant([[3]])
    chosen = np.stack([sampled_losses.log_uniform_sample(labels, 5, 20)[0] for _ in range(50)])
    chosen = np.concatenate([chosen, on_device(lambda: sampled_losses.log_uniform_sample(labels, 5, 20)[0][None])])
    assert all(len(set(row)) == 5 for row in chosen)
    assert chosen.max() < 20 and (chosen == 0).sum() > (chosen == 19).sum()
    everything = tf.range(20)[None]
    expected = sampled_losses.log_uniform_sample(everything, 5, 20)[1]
    np.testing.assert_allclose(np.sum(expected), 5, rtol=1e-3)
    loss = nn_ops.sampled_softmax_loss(tf.ones([20, 2]), tf.zeros([20]), [[1], [2]], tf.ones([2, 2]), 5, 20)
    assert np.isfinite(loss).all()


def test_dropout_drops_at_its_rate_and_keeps_the_mean(on_device):
    x = np.ones((64, 64), "float32")

    def both(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = rand_ops.dropout(x, rate=0.25)
        return y, tape.gradient(y, x)

    value, gradient = on_device(both, x)
    assert set(np.unique(value)) == {0.0, np.float32(1 / 0.75)}
    assert abs((value == 0).mean() - 0.25) < 0.03
    np.testing.assert_array_equal(gradient, value)


def test_dropout_shares_noise_and_repeats_with_a_seed():
    x = tf.ones([8, 16], tf.float16)
    shared = rand_ops.dropout(x, 0.5, noise_shape=[8, 1]).numpy()
    assert (shared == shared[:, :1]).all() and shared.dtype == np.float16
    first, second = (rand_ops.dropout(x, 0.5, seed=tf.constant([1, 2])).numpy() for _ in range(2))
    np.testing.assert_array_equal(first, second)
    with pytest.raises(ValueError, match=r"The rate must be in the range \[0, 1\), but was 1"):
        rand_ops.dropout(x, 1)
    with pytest.raises(ValueError, match="its size or 1"):
        rand_ops.dropout(x, 0.5, noise_shape=[8, 2])


def test_operations_work_in_layers_built_with_an_unknown_batch():
    class Loss(tf.keras.layers.Layer):
        def call(self, logits):
            labels = tf.ones_like(logits[:, :2, 0], tf.int32)
            full = tf.ones_like(logits[:, 0, 0], tf.int32)
            loss = nn_ops.ctc_loss_v2(labels, tf.transpose(logits, [1, 0, 2]), 2 * full, 5 * full, 0)
            return rand_ops.dropout(loss[:, None], 0.0, noise_shape=[None, 1])

    inputs = tf.keras.Input([5, 3])
    model = tf.keras.Model(inputs, Loss()(inputs))
    x = tf.random.normal([4, 5, 3])
    expected = tf.nn.ctc_loss([[1, 1]] * 4, x, [2] * 4, [5] * 4, logits_time_major=False, blank_index=0)
    np.testing.assert_allclose(model(x)[:, 0], expected, rtol=1e-4)


def test_losses_are_the_same_in_a_tf1_graph(rng):
    logits = rng.standard_normal((7, 2, 4)).astype(np.float32)
    labels, lengths, times = np.array([[1, 1, 2], [3, 2, 0]]), np.array([3, 2]), np.array([7, 6])
    weights, inputs = rng.standard_normal((6, 3)).astype(np.float32), rng.standard_normal((2, 3)).astype(np.float32)
    sampled = (np.array([0, 2]), np.full((2, 1), 0.4, np.float32), np.array([0.5, 0.3], np.float32))

    def losses():
        kind = tf.constant([[0], [2]])
        ctc = nn_ops.ctc_loss_v2(tf.constant(labels), logits, tf.constant(lengths), tf.constant(times), 0)
        softmax = nn_ops.sampled_softmax_loss(weights, np.zeros(6, np.float32), kind, inputs, 2, 6, 1, sampled)
        return ctc, softmax

    expected = losses()
    # As in a program of TensorFlow 1: operators compare tensors by identity, as Python objects.
    compare = tf.compat.v1
    compare.disable_tensor_equality()
    try:
        with tf.Graph().as_default(), compare.Session() as session:
            received = session.run(losses())
    finally:
        compare.enable_tensor_equality()
    for one, other in zip(expected, received, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5)
    np.testing.assert_allclose(received[0], tf.nn.ctc_loss(labels, logits, lengths, times, blank_index=0), rtol=1e-5)
