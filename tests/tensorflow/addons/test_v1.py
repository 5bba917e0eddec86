"""The layers of TensorFlow 1 compute what their definition says, in programs for the IPU and in graphs of the host."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from ipu_tensorflow_addons.v1 import layers
from ipu_tensorflow_addons.v1.layers import rnn_ops

TIMES, BATCH, FEATURES, UNITS = 5, 3, 4, 6
LENGTHS = np.array([5, 2, 3], np.int32)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X, STATE = noise(TIMES, BATCH, FEATURES), noise(BATCH, UNITS, seed=1)
SCORES = np.random.default_rng(3).random((TIMES, BATCH)).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_by_hand(kernel, biases, state, lengths):
    h, c = state
    outputs = np.zeros((TIMES, BATCH, UNITS))
    for t in range(TIMES):
        i, f, g, o = np.split(np.concatenate([X[t], h], 1) @ kernel + biases.reshape(-1), 4, axis=1)
        memory = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(memory)
        valid = (t < lengths)[:, None]
        h, c = np.where(valid, hidden, h), np.where(valid, memory, c)
        outputs[t] = np.where(valid, hidden, 0)
    return outputs, h, c


def gru_by_hand(kernel, bias, h, lengths, scores):
    outputs = np.zeros((TIMES, BATCH, UNITS))
    of_inputs, of_state = kernel[:FEATURES], kernel[FEATURES:]
    for t in range(TIMES):
        z, r, n = np.split(X[t] @ of_inputs + bias.reshape(-1), 3, axis=1)
        of_z, of_r, of_n = np.split(of_state, 3, axis=1)
        update, reset = sigmoid(z + h @ of_z), sigmoid(r + h @ of_r)
        update = (1 - scores[t])[:, None] * update
        hidden = update * h + (1 - update) * np.tanh(n + (reset * h) @ of_n)
        valid = (t < lengths)[:, None]
        h = np.where(valid, hidden, h)
        outputs[t] = np.where(valid, hidden, 0)
    return outputs, h


def on_ipu(strategy, function):
    with strategy.scope():
        return strategy.run(tf.function(function, autograph=False))


def close(received, expected):
    np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True])
def test_lstm(dynamic, strategy):
    kind = layers.PopnnDynamicLSTM if dynamic else layers.PopnnLSTM
    layer = kind(UNITS, bias_initializer=tf.compat.v1.ones_initializer())
    more = (LENGTHS,) if dynamic else ()
    state = rnn_ops.LSTMStateTuple(tf.constant(STATE + 1), tf.constant(STATE))
    with strategy.scope():
        layer.build(X.shape)

    def run():
        outputs, last = layer(X, *more, initial_state=state)
        return outputs, last.h, last.c

    lengths = LENGTHS if dynamic else np.full(BATCH, TIMES)
    expected = lstm_by_hand(layer.kernel.numpy(), layer._biases[0].numpy(), (STATE, STATE + 1), lengths)
    for received, wanted, host in zip(on_ipu(strategy, run), expected, run(), strict=True):
        close(received, wanted)
        close(host, wanted)
    with pytest.raises(ValueError, match="LSTMStateTuple"):
        layer(X, *more, initial_state=tf.constant(STATE))


@pytest.mark.parametrize("kind", ["PopnnGRU", "PopnnDynamicGRU", "PopnnAUGRU"])
def test_gru(kind, strategy):
    layer = getattr(layers, kind)(UNITS)
    more = {"PopnnGRU": (), "PopnnDynamicGRU": (LENGTHS,), "PopnnAUGRU": (LENGTHS, SCORES)}[kind]
    with strategy.scope():
        layer.build(X.shape)

    def run():
        return layer(X, *more, initial_state=tf.constant(STATE))

    bias = np.zeros(3 * UNITS)
    if kind == "PopnnAUGRU":
        bias[: 2 * UNITS] = 1
    lengths = LENGTHS if more else np.full(BATCH, TIMES)
    scores = SCORES if kind == "PopnnAUGRU" else np.zeros_like(SCORES)
    expected = gru_by_hand(layer.kernel.numpy(), bias, STATE, lengths, scores)
    for received, wanted, host in zip(on_ipu(strategy, run), expected, run(), strict=True):
        close(received, wanted)
        close(host, wanted)


def test_variables_of_a_graph_are_found_by_name():
    with tf.Graph().as_default(), tf.compat.v1.variable_scope("net"):
        outputs, state = layers.PopnnGRU(UNITS, reset_after=True, name="gru")(tf.constant(X))
        names = {v.name: v.shape for v in tf.compat.v1.trainable_variables()}
        assert names == {"net/gru/kernel:0": (FEATURES + UNITS, 3 * UNITS), "net/gru/biases:0": (3, 2, UNITS)}
        gradients = tf.gradients(outputs, tf.compat.v1.trainable_variables())
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            sequence, last, *_ = session.run([outputs, state, *gradients])
    close(sequence[-1], last)


def test_layers_without_a_name_share_nothing():
    with tf.Graph().as_default():
        made = [layers.PopnnLSTM(UNITS), layers.PopnnLSTM(UNITS), layers.PopnnDynamicGRU(UNITS)]
        made[0](tf.constant(X)), made[1](tf.constant(X)), made[2](tf.constant(X), LENGTHS)
        kernels = [layer.weights[0].name for layer in made]
        assert kernels == ["popnn_lstm/kernel:0", "popnn_lstm_1/kernel:0", "popnn_dynamic_gru/kernel:0"]
        assert len(tf.compat.v1.trainable_variables()) == 6
        with tf.compat.v1.variable_scope("net"):
            first, _ = layers.PopnnLSTM(UNITS, name="one")(tf.constant(X))
        with tf.compat.v1.variable_scope("net", reuse=True):
            second, _ = layers.PopnnLSTM(UNITS, name="one")(tf.constant(X))
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            close(*session.run([first, second]))


def test_old_addresses_lead_to_the_same_classes():
    from tensorflow.python.ipu.keras.layers import GRU
    from tensorflow.python.ipu.rnn_ops import PopnnLSTM

    import ipu_tensorflow_addons.keras.layers as now

    assert PopnnLSTM is layers.PopnnLSTM and GRU is now.PopnnGRU
    assert ipu.rnn_ops.PopnnLSTM is ipu.ops.rnn_ops.PopnnLSTM is layers.PopnnLSTM
    assert ipu.keras.layers.LSTM is now.PopnnLSTM is now.LSTM
    assert ipu.keras.layers.GroupNorm is now.GroupNormalization
    assert ipu.keras.losses.CTCLoss is now.CTCLoss


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="float16 and float32"):
        layers.PopnnLSTM(4, dtype=tf.float64)
    with pytest.raises(ValueError, match="activation must be one of"):
        layers.PopnnGRU(4, activation="elu")
    with pytest.raises(ValueError, match="rank 3"):
        layers.PopnnGRU(4)(X[0])
