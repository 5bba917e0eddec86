"""Stock Keras' LSTM and GRU in scope run on the core's kernel and compute what they compute outside."""

import keras
import numpy as np
import pytest
from keras import layers

from openipu.tensorflow.ops import recurrent

X = np.random.default_rng(0).standard_normal((8, 6, 3)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((8, 2)).astype(np.float32)


@pytest.fixture
def loops(monkeypatch):
    """How often the kernel was asked for."""
    found = []
    monkeypatch.setattr(recurrent, "_in_program", lambda *a, run=recurrent._in_program: found.append(a) or run(*a))
    return found


def trained_like_stock(strategy, build, x=X, tolerance=1e-5):
    stock = build()
    with strategy.scope():
        model = build()
        model.set_weights(stock.get_weights())
    for one in (stock, model):
        scope = strategy.scope() if one is model else keras.name_scope("host")
        with scope:
            one.compile(keras.optimizers.SGD(0.1), loss="mse", jit_compile="auto" if one is model else False)
            one.fit(x, Y, batch_size=4, epochs=3, shuffle=False, verbose=0)
    for expected, received in zip(stock.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(received, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.filterwarnings("ignore:Layer 'flatten:UserWarning")
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_masks_backwards_and_states(kind, strategy, loops):
    def build():
        inputs = layers.Input((6, 3))
        x = layers.Masking()(inputs)
        sequence, *states = getattr(layers, kind)(5, return_sequences=True, return_state=True, go_backwards=True)(x)
        x = getattr(layers, kind)(5, recurrent_activation="hard_sigmoid", zero_output_for_mask=True,
                                  return_sequences=True)(sequence, initial_state=states)  # fmt: skip
        return keras.Model(inputs, layers.Dense(2)(layers.Flatten()(x)))

    x = np.where(np.random.default_rng(2).random((8, 6, 1)) > 0.4, X, 0)
    trained_like_stock(strategy, build, x)
    assert len(loops) >= 2


def test_stateful_layers_go_on(strategy, loops):
    def build():
        inputs = layers.Input(batch_shape=(4, 6, 3))
        return keras.Model(inputs, layers.Dense(2)(layers.GRU(4, stateful=True, reset_after=False)(inputs)))

    trained_like_stock(strategy, build)
    assert loops


def test_recurrent_dropout_is_left_to_keras_and_repeats_by_its_seed(strategy, loops):
    def outputs(seed):
        with strategy.scope():
            model = keras.Sequential([layers.Input((6, 3)), layers.LSTM(
                4, dropout=0.3, recurrent_dropout=0.3, seed=seed, kernel_initializer="ones",
                recurrent_initializer="ones")])  # fmt: skip
            model.compile(keras.optimizers.SGD(0.1), loss="mse")
            model.fit(X, np.tile(Y, 2), batch_size=4, shuffle=False, verbose=0)
        return model.get_weights()[0]

    first, again, other = outputs(1), outputs(1), outputs(2)
    assert not loops
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-6
