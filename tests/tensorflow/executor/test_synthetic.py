"""With synthetic data nothing goes between host and device; what stays is the work."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.keras.parallel import ipus

X = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
Y = X.sum(1, keepdims=True)


def flags(monkeypatch, text):
    monkeypatch.setenv("TF_POPLAR_FLAGS", text)


def build():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, bias_initializer="ones")])
    model.compile("sgd", "mse", metrics=["mae"], steps_per_execution=2)
    return model


def unreadable():
    """A dataset that fails when somebody reads it."""

    def broken(number):
        tf.debugging.assert_negative(number, "the dataset was read")
        return tf.zeros([4, 3]), tf.zeros([4, 1])

    return tf.data.Dataset.range(4).map(broken)


def fit(model, **options):
    return model.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0, **options).history


@pytest.mark.parametrize("replicas", [1, 2])
def test_without_any_transfer_training_ends_with_zeros_and_the_weights_it_began_with(monkeypatch, replicas):
    flags(monkeypatch, "--use_synthetic_data --synthetic_data_initializer=random")
    with ipus(replicas):
        model = build()
        before = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
        history = model.fit(unreadable(), epochs=3, verbose=0).history
        assert history == {"loss": [0.0] * 3, "mae": [0.0] * 3}
        assert model.evaluate(unreadable(), verbose=0) == [0.0, 0.0]
        np.testing.assert_array_equal(model.predict(unreadable(), verbose=0), np.zeros((16, 1)))
        for old, new in zip(before, (*model.variables, *model.optimizer.variables), strict=True):
            np.testing.assert_array_equal(old, new.numpy())


def test_a_dataset_that_is_read_fails(strategy):
    with strategy.scope(), pytest.raises(tf.errors.InvalidArgumentError, match="the dataset was read"):
        build().fit(unreadable(), verbose=0)


@pytest.mark.parametrize(("initializer", "value"), [("", 0.0), ("--synthetic_data_initializer=2.5", 2.5)])
def test_a_synthetic_infeed_holds_what_the_initializer_says(strategy, monkeypatch, initializer, value):
    flags(monkeypatch, f"--synthetic_data_categories=infeed {initializer}")
    constant = np.full_like(X, value)
    with strategy.scope():
        model = build()
        expected = constant @ model.get_weights()[0] + 1
        np.testing.assert_allclose(model.predict(X, batch_size=4, verbose=0), expected, rtol=1e-6)
        twin = build()
        twin.set_weights(model.get_weights())
        synthetic = fit(model)
        flags(monkeypatch, "")
        real = twin.fit(constant, constant[:, :1], batch_size=4, epochs=2, shuffle=False, verbose=0).history
        np.testing.assert_allclose(synthetic["loss"], real["loss"], rtol=1e-5)
        np.testing.assert_allclose(model.get_weights()[0], twin.get_weights()[0], rtol=1e-5)


@pytest.mark.parametrize(("initializer", "low", "high"), [("uniform", 0, 1), ("normal", -6, 6)])
def test_random_inputs_are_distributed_as_asked(strategy, monkeypatch, initializer, low, high):
    flags(monkeypatch, f"--synthetic_data_categories=infeed --synthetic_data_initializer={initializer}")
    with strategy.scope():
        model = keras.Sequential([keras.Input((100,)), keras.layers.Identity()])
        seen = model.predict(np.full((16, 100), 99.0), batch_size=4, verbose=0)
    assert seen.min() >= low and seen.max() <= high and len(np.unique(seen)) > 100
    assert (seen.min() < 0) == (initializer == "normal")


def test_a_synthetic_outfeed_trains_all_the_same(strategy, monkeypatch):
    with strategy.scope():
        model, twin = build(), build()
        twin.set_weights(model.get_weights())
        real = fit(twin)
        flags(monkeypatch, "--synthetic_data_categories=outfeed")
        history = fit(model)
    assert set(history) == set(real) and not np.any(list(history.values()))
    np.testing.assert_array_equal(model.get_weights()[0], twin.get_weights()[0])


def test_synthetic_parameters_are_only_on_the_device(strategy, monkeypatch):
    flags(monkeypatch, "--synthetic_data_categories=parameters --synthetic_data_initializer=2")
    with strategy.scope():
        model = build()
        before = model.get_weights()
        predicted = model.predict(X, batch_size=4, verbose=0)
        np.testing.assert_allclose(predicted, (2 * X).sum(1, keepdims=True) + 2, rtol=1e-5, atol=1e-5)
        losses = fit(model)["loss"]
        # What the device trains stays on it from one execution to the next.
        assert 0 < losses[1] != losses[0]
        for old, new in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(old, new)


def test_a_function_gets_synthetic_arguments_and_gives_zeros(strategy, monkeypatch):
    flags(monkeypatch, "--use_synthetic_data --synthetic_data_initializer=3")
    with strategy.scope():
        total = tf.Variable(1.0)

        @tf.function
        def step(x):
            total.assign_add(tf.reduce_sum(x))
            return x + total

        np.testing.assert_array_equal(strategy.run(step, (tf.ones([2]),)), [0, 0])
        assert float(total) == 1.0


def test_without_seeds_random_numbers_repeat(strategy, monkeypatch):
    draw = tf.function(lambda: tf.random.uniform([8]))
    first, second = (strategy.run(draw).numpy() for _ in range(2))
    assert not np.array_equal(first, second)
    flags(monkeypatch, "--synthetic_data_categories=seed")
    first, second = (strategy.run(draw).numpy() for _ in range(2))
    np.testing.assert_array_equal(first, second)
