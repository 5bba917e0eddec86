"""Every kind of model, and where its weights can be seen before, during and after training."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((48, 5)).astype(np.float32), RNG.standard_normal((48, 2)).astype(np.float32)


def build():
    return keras.Sequential([layers.Input((5,)), layers.Dense(4, "tanh"), layers.Dense(2)])


@pytest.fixture
def model(strategy):
    with strategy.scope():
        made = build()
        made.compile(keras.optimizers.Adam(0.05), "mse", steps_per_execution=3)
    return made


def train(model):
    return model.fit(X, Y, batch_size=8, verbose=0)


def numpy_forward(weights):
    return np.tanh(X @ weights[0] + weights[1]) @ weights[2] + weights[3]


def test_models_in_scope_keep_their_class_and_gain_methods(strategy):
    with strategy.scope():
        inputs = layers.Input((5,))
        made = [build(), keras.Model(inputs, layers.Dense(2)(inputs))]
    assert type(made[0]).__name__ == "Sequential" and isinstance(made[0], keras.Sequential)
    assert type(made[1]).__name__ == "Functional" and isinstance(made[1], keras.Model)
    assert made[0].__original_class__ is keras.Sequential
    for one in made:
        one.set_infeed_queue_options(prefetch_depth=2)
    with pytest.raises(AttributeError):
        build().set_infeed_queue_options(prefetch_depth=2)


@tf.keras.utils.register_keras_serializable("openipu-tests")
class Scale(layers.Layer):
    """A layer written with TensorFlow operations and a variable that training writes."""

    def build(self, shape):
        self.gain = self.add_weight(shape=(shape[-1],), initializer="ones", name="gain")
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, x, training=False):
        if training:
            self.calls.assign_add(1.0)
        return tf.where(x > 0, x, tf.math.sin(x)) * self.gain


def test_deferred_nested_and_custom_layers(twins):
    def made():
        inner = keras.Sequential([layers.Dense(4), Scale()])
        return keras.Sequential([inner, layers.Dense(2)])

    stock, model = twins(made, lambda: {"optimizer": "sgd", "loss": "mse"}, 3)
    stock(X[:8])
    start = stock.get_weights()
    model.predict(X[:8], batch_size=8, verbose=0)
    model.set_weights(start)
    for one in (stock, model):
        one.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    for one, other in zip(stock.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-7)
    assert float(model.layers[0].layers[1].calls.numpy()) == 6


class OwnSteps(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, x):
        return self.dense(x)

    def test_step(self, data):
        x, y = data
        return {"largest": tf.reduce_max(tf.abs(self(x) - y))}

    def predict_step(self, data):
        return {"twice": 2 * self(data[0] if isinstance(data, tuple) else data)}


def test_own_test_step_and_predict_step(strategy):
    with strategy.scope():
        model = OwnSteps()
        model.compile("sgd", "mse", steps_per_execution=2)
    model.fit(X, Y, batch_size=8, verbose=0)
    plain = X @ model.dense.kernel.numpy() + model.dense.bias.numpy()
    logs = model.evaluate(X, Y, batch_size=8, verbose=0, return_dict=True)
    np.testing.assert_allclose(logs["largest"], np.abs(plain - Y)[-8:].max(), rtol=1e-5)
    predicted = model.predict(X, batch_size=8, verbose=0)
    np.testing.assert_allclose(predicted["twice"], 2 * plain, rtol=1e-4, atol=1e-6)


def test_frozen_layers_stay_and_compile_again_thaws(strategy):
    with strategy.scope():
        model = build()
        model.layers[0].trainable = False
        model.compile("sgd", "mse")
    frozen, free = model.layers[0].get_weights(), model.layers[1].get_weights()
    train(model)
    np.testing.assert_array_equal(frozen[0], model.layers[0].get_weights()[0])
    assert not np.allclose(free[0], model.layers[1].get_weights()[0])
    model.layers[0].trainable = True
    with strategy.scope():
        model.compile("sgd", "mse")
    train(model)
    assert not np.allclose(frozen[0], model.layers[0].get_weights()[0])


def test_a_model_without_anything_to_train_is_fitted_with_a_warning(strategy):
    with strategy.scope():
        model = keras.Sequential([layers.Input((2,)), layers.Rescaling(2.0)])
        model.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="trainable"):
        history = model.fit(Y, Y, batch_size=8, shuffle=False, verbose=0)
    np.testing.assert_allclose(history.history["loss"][0], np.square(Y).mean(), rtol=1e-5)


def test_trained_weights_are_seen_everywhere(model, strategy, tmp_path):
    before = tf.function(lambda x: model(x))  # traced before training, called after it
    before(X)
    kernel = model.layers[0].kernel
    start = kernel.numpy()
    checkpoint = tf.train.Checkpoint(model=model)
    train(model)
    np.testing.assert_allclose(before(X), numpy_forward(model.get_weights()), rtol=1e-4, atol=1e-6)
    train(model)
    np.testing.assert_allclose(before(X), numpy_forward(model.get_weights()), rtol=1e-4, atol=1e-6)
    train(model)
    np.testing.assert_allclose(model(X), numpy_forward(model.get_weights()), rtol=1e-4, atol=1e-6)
    train(model)
    assert not np.allclose(kernel.numpy(), start)
    train(model)
    np.testing.assert_array_equal(tf.convert_to_tensor(kernel), kernel.value.numpy())
    train(model)
    path = checkpoint.save(str(tmp_path / "checkpoint"))
    weights = model.get_weights()
    train(model)
    model.save_weights(tmp_path / "after.weights.h5")
    after = model.get_weights()
    checkpoint.restore(path).assert_existing_objects_matched()
    np.testing.assert_array_equal(model.get_weights()[0], weights[0])
    model.load_weights(tmp_path / "after.weights.h5")
    np.testing.assert_allclose(model.predict(X, batch_size=8, verbose=0), numpy_forward(after), rtol=1e-4, atol=1e-6)


def test_weights_set_by_hand_are_used(model):
    train(model)
    model.set_weights([np.zeros_like(w) for w in model.get_weights()])
    assert not model.predict(X, batch_size=8, verbose=0).any()
    model.layers[1].bias.assign([1.0, 2.0])
    np.testing.assert_array_equal(model.predict(X, batch_size=8, verbose=0), np.tile([1.0, 2.0], (48, 1)))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(X))
    assert all(g is not None for g in tape.gradient(loss, model.trainable_variables))


def test_saved_models_load_inside_and_outside_the_scope(model, strategy, tmp_path):
    train(model)
    expected = model.predict(X, batch_size=8, verbose=0)
    for name in ("model.keras", "model.h5"):
        model.save(tmp_path / name)
        # Stock Keras cannot read the name of a loss back from HDF5.
        outside = keras.models.load_model(tmp_path / name, compile=name != "model.h5")
        assert not hasattr(type(outside), "__original_class__")
        np.testing.assert_allclose(outside.predict(X, verbose=0), expected, rtol=1e-4, atol=1e-6)
    with strategy.scope():
        inside = keras.models.load_model(tmp_path / "model.keras")
    assert inside.__original_class__ is keras.Sequential
    np.testing.assert_allclose(inside.predict(X, batch_size=8, verbose=0), expected, rtol=1e-4, atol=1e-6)
    assert int(inside.optimizer.iterations) == 6
    for one in (model, inside):
        one.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    np.testing.assert_allclose(inside.get_weights()[0], model.get_weights()[0], rtol=1e-5)
    with strategy.scope():
        clone = keras.models.clone_model(model)
    assert clone.__original_class__ is keras.Sequential


def test_fit_again_and_compile_again_go_on_from_the_weights(twins):
    stock, model = twins(build, lambda: {"optimizer": keras.optimizers.Adam(0.01), "loss": "mse"}, 3)
    for one in (stock, model):
        one.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
        one.optimizer.learning_rate = 0.002
        one.fit(X, Y, batch_size=16, shuffle=False, verbose=0)
        one.compile(optimizer=keras.optimizers.SGD(0.1), loss="mae")
        one.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    for one, other in zip(stock.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)


def test_dropout_differs_between_steps_and_repeats_with_the_seed(twins):
    def made():
        dropout = layers.Dropout(0.5, seed=3)
        return keras.Sequential([layers.Input((5,)), dropout, layers.Dense(1, kernel_initializer="ones")])

    def compile_with():
        return {"optimizer": keras.optimizers.SGD(0.0), "loss": lambda y, p: p, "jit_compile": True}

    ones = np.ones((48, 5), np.float32)

    def losses(model):
        kept = []
        keep = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: kept.append(logs["loss"]))
        model.fit(ones, ones, batch_size=8, shuffle=False, verbose=0, callbacks=[keep])
        return kept

    stock, model = twins(made, compile_with, 1)
    first, second = losses(model), losses(model)
    assert len(set(first)) > 3 and first != second
    np.testing.assert_allclose(first, losses(stock), rtol=1e-5)
    again = twins(made, compile_with, 1)[1]
    assert losses(again) == first
    assert float(model.evaluate(ones, ones, batch_size=8, verbose=0)) == pytest.approx(5.0)


def test_models_in_a_scope_without_keras_extensions_are_left_alone(strategy):
    from tensorflow.python import ipu

    plain = ipu.ipu_strategy.IPUStrategy(enable_keras_extensions=False)
    with plain.scope():
        model = build()
    assert not hasattr(model, "set_infeed_queue_options")


def test_copies_and_pickles_of_a_model_train_on(strategy):
    import copy
    import pickle

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((16, 4)).astype("float32"), rng.standard_normal((16, 2)).astype("float32")
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        model.compile("adam", "mse", steps_per_execution=2)
        model.fit(x, y, batch_size=8, verbose=0)
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
        for one in copies:
            assert type(one) is type(model)
            one.fit(x, y, batch_size=8, shuffle=False, verbose=0)
            for mine, theirs in zip(model.get_weights(), one.get_weights(), strict=True):
                np.testing.assert_allclose(theirs, mine, rtol=1e-6)
