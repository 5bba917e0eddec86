"""Layers of Keras 2 (tf_keras), which capture differently in places, compute what stock TensorFlow computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tf_keras

from openipu.tensorflow.stablehlo import lower

L = tf_keras.layers
LAYERS = {
    "dense": (lambda: L.Dense(4, activation="softmax"), (3, 5)),
    "convolution": (lambda: L.Conv2D(3, 3, strides=2, padding="same"), (2, 6, 7, 2)),
    "batch normalisation": (lambda: L.BatchNormalization(), (2, 3, 3, 2)),
    "layer normalisation": (lambda: L.LayerNormalization(), (3, 5)),
    "max-pooling": (lambda: L.MaxPooling2D(2), (2, 6, 6, 2)),
    "lstm": (lambda: L.LSTM(3), (2, 4, 3)),
    "gru": (lambda: L.GRU(3, return_sequences=True), (2, 4, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer_agrees_with_stock_keras_2(agrees, name):
    tf_keras.utils.set_random_seed(1)
    make, shape = LAYERS[name]
    layer = make()
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    layer(x)
    agrees(lambda a: layer(a, training=False), x, variables=layer.trainable_variables, tolerance=5e-5)


def test_dropout_draws_from_the_key(captured):
    layer = L.Dropout(0.5)
    x = np.ones(1000, np.float32)
    low = lower(captured(lambda a: layer(a, training=True), x)[0])
    assert low.needs_key
    with jax.enable_x64(True):
        first, second = (np.asarray(low(jnp.asarray(x), key=jax.random.key(seed))[0]) for seed in (0, 1))
    assert set(np.unique(first)) == {0.0, 2.0}
    assert 0.4 < (first > 0).mean() < 0.6
    assert not np.array_equal(first, second)
