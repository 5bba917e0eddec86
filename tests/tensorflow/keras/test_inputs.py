"""Every way to give data to a model: arrays, tensors, datasets, nested inputs and outputs, validation."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((48, 5)).astype(np.float32), RNG.standard_normal((48, 2)).astype(np.float32)
BATCHED = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8, drop_remainder=True)


def build():
    return keras.Sequential([layers.Input((5,)), layers.Dense(4, "tanh"), layers.Dense(2)])


def compile_with():
    return {"optimizer": keras.optimizers.SGD(0.05), "loss": "mse", "metrics": ["mae"]}


@pytest.fixture
def pair(twins):
    return twins(build, compile_with, 3)


def weights_agree(stock, model):
    for one, other in zip(stock.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-7)


def test_the_same_data_in_every_form_trains_the_same(pair):
    stock, model = pair
    start = model.get_weights()
    stock.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    forms = {
        "arrays": {"x": X, "y": Y, "batch_size": 8},
        "double precision": {"x": X.astype(np.float64), "y": Y.astype(np.float64), "batch_size": 8},
        "tensors": {"x": tf.constant(X), "y": tf.constant(Y), "batch_size": 8},
        "dataset": {"x": BATCHED},
        "repeated dataset": {"x": BATCHED.repeat(), "steps_per_epoch": 6},
        "dataset of double precision": {
            "x": BATCHED.map(lambda x, y: (tf.cast(x, tf.float64), tf.cast(y, tf.float64)))
        },
        "dataset of unknown length": {"x": BATCHED.filter(lambda x, y: True), "steps_per_epoch": 6},
    }
    for name, form in forms.items():
        model.set_weights(start)
        history = model.fit(**form, shuffle=False, verbose=0)
        assert len(history.history["loss"]) == 1, name
        weights_agree(stock, model)


def test_a_repeated_dataset_goes_on_where_the_last_epoch_ended(pair):
    stock, model = pair
    for one in (stock, model):
        one.fit(BATCHED.repeat(), steps_per_epoch=3, epochs=4, shuffle=False, verbose=0)
    weights_agree(stock, model)


def test_validation_data_split_and_frequency(pair):
    stock, model = pair
    held_out = (X[:24] + 1, Y[:24])
    dataset = tf.data.Dataset.from_tensor_slices(held_out).batch(8)
    weighted = (*held_out, np.linspace(0, 1, 24))
    for more in (
        {"validation_data": held_out},
        {"validation_data": weighted, "validation_freq": 2, "epochs": 2},
        {"validation_data": held_out, "validation_batch_size": 4},
        {"validation_split": 0.5},
    ):
        logs = [one.fit(X, Y, batch_size=8, shuffle=False, verbose=0, **more).history for one in (stock, model)]
        assert logs[0].keys() == logs[1].keys() >= {"val_loss", "val_mae"}
        for name, value in logs[0].items():
            np.testing.assert_allclose(logs[1][name], value, rtol=1e-5, err_msg=f"{more} {name}")
    static = dataset.batch(1).unbatch().apply(tf.data.experimental.assert_cardinality(3))
    static = static.map(lambda x, y: (tf.ensure_shape(x, (8, 5)), tf.ensure_shape(y, (8, 2))))
    logs = model.fit(X, Y, batch_size=8, shuffle=False, verbose=0, validation_data=static).history
    np.testing.assert_allclose(logs["val_loss"][0], model.evaluate(*held_out, batch_size=8, verbose=0)[0], rtol=1e-6)
    steps = model.fit(X, Y, batch_size=8, verbose=0, validation_data=static.repeat(), validation_steps=3).history
    np.testing.assert_allclose(steps["val_loss"][0], model.evaluate(*held_out, batch_size=8, verbose=0)[0], rtol=1e-6)


def test_evaluate_and_predict_like_stock_keras(pair):
    stock, model = pair
    np.testing.assert_allclose(
        model.evaluate(X, Y, batch_size=8, verbose=0), stock.evaluate(X, Y, batch_size=8, verbose=0), rtol=1e-5
    )
    logs = model.evaluate(BATCHED, verbose=0, return_dict=True)
    assert logs.keys() == {"loss", "mae"} and all(type(v) is float for v in logs.values())
    np.testing.assert_allclose(model.evaluate(BATCHED.repeat(), steps=6, verbose=0)[0], logs["loss"], rtol=1e-6)
    expected = stock.predict(X, verbose=0)
    for given in ({"x": X, "batch_size": 8}, {"x": BATCHED.map(lambda x, y: x)}, {"x": BATCHED}):
        predicted = model.predict(**given, verbose=0)
        assert type(predicted) is np.ndarray
        np.testing.assert_allclose(predicted, expected, rtol=1e-4, atol=1e-6)
    assert model.predict(BATCHED.repeat(), steps=3, verbose=0).shape == (24, 2)


def test_one_batch_at_a_time(pair):
    stock, model = pair
    for start in range(0, 24, 8):
        rows = slice(start, start + 8)
        one, other = (m.train_on_batch(X[rows], Y[rows], return_dict=True) for m in (stock, model))
        assert one.keys() == other.keys()
        np.testing.assert_allclose(list(other.values()), list(one.values()), rtol=1e-5)
    np.testing.assert_allclose(model.train_on_batch(X[:8], Y[:8]), stock.train_on_batch(X[:8], Y[:8]), rtol=1e-5)
    np.testing.assert_allclose(
        model.train_on_batch(X[:8], Y[:8], sample_weight=np.arange(8)),
        stock.train_on_batch(X[:8], Y[:8], sample_weight=np.arange(8)),
        rtol=1e-5,
    )
    np.testing.assert_allclose(model.test_on_batch(X[:8], Y[:8]), stock.test_on_batch(X[:8], Y[:8]), rtol=1e-5)
    np.testing.assert_allclose(model.predict_on_batch(X[:8]), stock.predict_on_batch(X[:8]), rtol=1e-4, atol=1e-6)
    weights_agree(stock, model)


def nested():
    a, b = layers.Input((5,), name="a"), layers.Input((2,), name="b")
    shared = layers.Dense(4, "tanh")
    hidden = layers.Concatenate()([shared(a), b])
    return keras.Model([a, b], [layers.Dense(2, name="first")(hidden), layers.Dense(1, name="second")(hidden)])


def test_lists_tuples_and_dictionaries(twins):
    stock, model = twins(nested, lambda: {"optimizer": "sgd", "loss": ["mse", "mae"], "metrics": [["mae"], ["mse"]]}, 3)
    second = Y[:, :1]
    logs = [
        one.fit([X, Y], [Y, second], batch_size=8, shuffle=False, verbose=0, epochs=2).history for one in (stock, model)
    ]
    assert logs[0].keys() == logs[1].keys()
    for name, value in logs[0].items():
        np.testing.assert_allclose(logs[1][name], value, rtol=1e-5, err_msg=name)
    dataset = tf.data.Dataset.from_tensor_slices(((X, Y), (Y, second))).batch(8, drop_remainder=True)
    for one in (stock, model):
        one.fit(dataset, shuffle=False, verbose=0)
    weights_agree(stock, model)
    expected = stock.predict([X, Y], verbose=0)
    for given in ([X, Y], (X, Y), {"a": X, "b": Y}):
        predicted = model.predict(given, batch_size=8, verbose=0)
        assert isinstance(predicted, list) and [p.shape for p in predicted] == [(48, 2), (48, 1)]
        for one, other in zip(expected, predicted, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        model.evaluate([X, Y], [Y, second], batch_size=8, verbose=0),
        stock.evaluate([X, Y], [Y, second], batch_size=8, verbose=0),
        rtol=1e-5,
    )


def test_shuffling_visits_every_example_once_and_differs_between_epochs(strategy):
    """The only weight sums its inputs, so the order of the data can be read from the loss of each step."""
    with strategy.scope():
        model = keras.Sequential([layers.Input((1,)), layers.Dense(1, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.0), loss=lambda y, p: p)
    x = np.arange(1, 17, dtype=np.float32)[:, None]
    seen = []

    class Keep(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(logs["loss"] * (batch + 1))

    model.fit(x, x, batch_size=1, epochs=2, verbose=0, callbacks=[Keep()])
    epochs = [np.diff([0, *seen[:16]]), np.diff([0, *seen[16:]])]
    for epoch in epochs:
        np.testing.assert_allclose(np.sort(epoch), np.arange(1, 17), rtol=1e-4)
    assert not np.allclose(*epochs)


def test_half_precision_integers_and_booleans_are_fed_as_they_are(strategy):
    with strategy.scope():
        kinds = {"h": "float16", "i": "uint8", "b": "bool"}
        inputs = {name: layers.Input((3,), dtype=kind, name=name) for name, kind in kinds.items()}
        summed = sum(layers.Lambda(lambda t: tf.cast(t, tf.float32))(v) for v in inputs.values())
        model = keras.Model(inputs, layers.Dense(1)(summed))
        model.compile("sgd", "mse")
    data = {"h": np.ones((4, 3), np.float16), "i": np.full((4, 3), 200, np.uint8), "b": np.ones((4, 3), bool)}
    expected = model.predict(data, batch_size=4, verbose=0)
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(expected, np.full((4, 3), 202.0) @ kernel + bias, rtol=1e-5)
