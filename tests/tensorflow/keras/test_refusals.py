"""What a model on a virtual IPU refuses, with the reason, leaving its weights as they were."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from openipu.errors import UnsupportedError

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((48, 5)).astype(np.float32), RNG.standard_normal((48, 2)).astype(np.float32)
EXAMPLES = tf.data.Dataset.from_tensor_slices((X, Y))
BATCHED = EXAMPLES.batch(8, drop_remainder=True)


class Generated(keras.utils.PyDataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return X[:8], Y[:8]


@pytest.fixture(scope="module")
def model():
    from tensorflow.python import ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        made = keras.Sequential([layers.Input((5,)), layers.Dense(2)])
        made.compile("sgd", "mse", steps_per_execution=3)
    made.fit(X, Y, batch_size=8, verbose=0)
    yield made
    ipu.config.reset_ipu_configuration()


CASES = {
    "partial batch": ({"x": X, "y": Y, "batch_size": 10}, ValueError, "partial batch.*currently set to 10"),
    "partial batch of the default size": ({"x": X, "y": Y}, ValueError, "partial batch.*currently set to 32"),
    "indivisible steps": (
        {"x": X, "y": Y, "batch_size": 12}, ValueError,
        r"`steps_per_execution` \(3\) must be a divisor of the number of batches \(4\) in the dataset provided\.",
    ),
    "validation with indivisible steps": (
        {"x": X, "y": Y, "batch_size": 8, "validation_data": (X[:32], Y[:32])}, ValueError,
        r"`steps_per_execution` \(3\) must be a divisor of the number of batches \(4\) in the dataset provided\.",
    ),
    "dynamic batch": ({"x": EXAMPLES.batch(8)}, ValueError, r"\(None, 5\) which is not fully defined.*drop_remainder"),
    "unknown length": (
        {"x": BATCHED.filter(lambda x, y: True)}, ValueError, "Could not infer the size of the data. You must specify",
    ),
    "infinite": ({"x": BATCHED.repeat()}, ValueError, "infinitely repeating dataset"),
    "too few": ({"x": BATCHED, "steps_per_epoch": 9}, ValueError, "at least 9 batches .* only generate 6"),
    "too few for all epochs": (
        {"x": BATCHED, "steps_per_epoch": 3, "epochs": 3}, ValueError, "at least 9 batches .* only generate 6",
    ),
    "generator": ({"x": ((X, Y) for _ in range(3))}, ValueError, "of type `<class 'generator'>`.*from_generator"),
    "python dataset": ({"x": Generated()}, ValueError, "Generated.*not compatible with the IPU's requirement"),
    "iterator": ({"x": iter([(X, Y)])}, ValueError, "not compatible with the IPU's requirement"),
    "dataset iterator": ({"x": BATCHED.as_numpy_iterator()}, ValueError, "not compatible with the IPU's requirement"),
    "text": ({"x": np.full((48, 5), "a"), "y": Y, "batch_size": 8}, tf.errors.FailedPreconditionError, "string"),
    "complex": ({"x": X + 1j, "y": Y, "batch_size": 8}, tf.errors.FailedPreconditionError, "complex64"),
    "complex dataset": (
        {"x": BATCHED.map(lambda x, y: (tf.cast(x, tf.complex64), y))}, tf.errors.FailedPreconditionError, "complex64",
    ),
    "ragged": (
        {"x": tf.data.Dataset.from_tensors((tf.ragged.constant([[1.0], [1.0, 2.0]]), Y[:2]))}, ValueError,
        "dense tensors of static shape",
    ),
    "lengths": ({"x": X, "y": Y[:40], "batch_size": 8}, ValueError, "cardinality is ambiguous"),
    "dataset with targets": ({"x": BATCHED, "y": Y}, ValueError, "y and sample_weight must be None"),
    "empty": ({"x": X[:0], "y": Y[:0], "batch_size": 8}, ValueError, "Expect x to be a non-empty array or dataset."),
    "nothing": ({"x": None}, ValueError, "Expect x to be a non-empty array or dataset."),
    "batch size": ({"x": X, "y": Y, "batch_size": 0}, ValueError, "batch_size must be a positive integer"),
    "shape of x": ({"x": X[:, :3], "y": Y, "batch_size": 8}, ValueError, "(?s)expected.*5.*3|incompatible"),
    "dataset that ends early": (
        {"x": BATCHED.filter(lambda x, y: True), "steps_per_epoch": 9}, RuntimeError, "ended after 6 of 9 steps",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "error", "text"), CASES.values(), ids=CASES.keys())
def test_fit_refuses(arguments, error, text, model):
    ran_before_it_failed = "ended after" in text
    before = model.get_weights()
    with pytest.raises(error, match=text):
        model.fit(**arguments, verbose=0)
    if not ran_before_it_failed:
        for one, other in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)
    model.fit(X, Y, batch_size=8, verbose=0)


def test_evaluate_and_predict_refuse_the_same(model):
    with pytest.raises(ValueError, match="partial batch"):
        model.evaluate(X, Y, batch_size=10)
    with pytest.raises(ValueError, match="not fully defined"):
        model.predict(EXAMPLES.batch(8))
    with pytest.raises(ValueError, match="divisor"):
        model.predict(X, batch_size=12)
    with pytest.raises(ValueError, match="not compatible with the IPU's requirement"):
        model.predict(x for x in [X])


def test_larger_steps_per_execution_are_truncated_with_a_warning(model, caplog):
    with caplog.at_level(logging.WARNING, "openipu"):
        history = model.fit(X[:16], Y[:16], batch_size=8, verbose=0)
    assert history.params["steps"] == 2
    assert (
        "`steps_per_execution` has been set to 3 but the dataset provided only contains 2 batches. Using 2 as "
        "`steps_per_execution`."
    ) in caplog.text


def test_a_model_that_was_not_compiled(strategy):
    with strategy.scope():
        model = keras.Sequential([layers.Input((5,)), layers.Dense(2)])
    for call in (model.fit, model.evaluate):
        with pytest.raises((RuntimeError, ValueError), match="compile"):
            call(X, Y, batch_size=8)
    with pytest.raises((RuntimeError, ValueError), match="compile"):
        model.train_on_batch(X, Y)
    assert model.predict(X, batch_size=8, verbose=0).shape == (48, 2)


def test_eager_models(strategy):
    with strategy.scope():
        model = keras.Sequential([layers.Input((5,)), layers.Dense(2)])
        model.compile("sgd", "mse", run_eagerly=True)
    for call in (model.fit, model.evaluate, model.predict):
        with pytest.raises(RuntimeError, match=r"cannot run eagerly when using `IPUStrategy`. Set `run_eagerly=False`"):
            call(X, batch_size=8)


@pytest.mark.parametrize("method", ["train_step", "make_train_function", "make_test_function", "make_predict_function"])
def test_overridden_functions(method, strategy):
    own = type("Own", (keras.Sequential,), {method: lambda self, *args: None})
    with strategy.scope():
        model = own([layers.Input((5,)), layers.Dense(2)])
        model.compile("sgd", "mse")
    calls = {"make_test_function": lambda: model.evaluate(X, Y), "make_predict_function": lambda: model.predict(X)}
    with pytest.raises(RuntimeError, match=f"The function `{method}` for the model .* has been overridden. .*"
                                           "`enable_keras_extensions=False`"):  # fmt: skip
        calls.get(method, lambda: model.fit(X, Y))()


def from_host(x):
    return tf.ensure_shape(tf.py_function(lambda v: v * 2, [x], tf.float32), x.shape)


UNCOMPILABLE = {
    "text": lambda x: x + tf.strings.to_number(tf.strings.as_string(x)),
    "host": from_host,
    "dynamic": lambda x: x + tf.reduce_max(tf.unique(tf.reshape(x, [-1]))[0]),
}


@pytest.mark.parametrize("kind", UNCOMPILABLE)
def test_an_operation_that_cannot_be_compiled(kind, strategy):
    with strategy.scope():
        inputs = layers.Input((5,))
        outputs = layers.Lambda(UNCOMPILABLE[kind], output_shape=(5,), name="culprit")(inputs)
        model = keras.Model(inputs, layers.Dense(2)(outputs))
        model.compile("sgd", "mse")
    before = model.get_weights()
    with pytest.raises(UnsupportedError, match=r"(?s)culprit") as refused:
        model.fit(X, Y, batch_size=8, verbose=0)
    # What programs of TensorFlow catch.
    assert isinstance(refused.value, tf.errors.UnimplementedError)
    np.testing.assert_array_equal(before[0], model.get_weights()[0])


@pytest.mark.parametrize("value", [0, -1, 2.5, "8", True])
@pytest.mark.parametrize("argument", ["batch_size", "steps_per_epoch", "validation_steps", "validation_batch_size"])
def test_sizes_and_steps_must_be_positive_integers(argument, value, strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
        with pytest.raises(ValueError, match=f"{argument} must be a positive integer. Received: {argument}={value!r}"):
            model.fit(np.zeros((8, 4), "float32"), np.zeros((8, 2), "float32"), **{"batch_size": 4, argument: value})


@pytest.mark.parametrize("value", [0, -1, 2.5, "8"])
def test_steps_per_execution_must_be_a_positive_integer(value, strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        with pytest.raises(ValueError, match=f"steps_per_execution must be a positive integer. .*={value!r}"):
            model.compile("sgd", "mse", steps_per_execution=value)


def model_of(*parts):
    model = keras.Sequential([keras.Input((5,)), *parts])
    model.compile("sgd", "mse")
    return model


def test_calls_inside_a_function_are_refused(strategy):
    with strategy.scope():
        model = model_of(layers.Dense(2))
        for call in (lambda: model.fit(X, Y, batch_size=8), lambda: model.predict(X, batch_size=8)):
            with pytest.raises(RuntimeError, match=r"inside a `tf\.function`"):
                tf.function(call)()


def test_infinite_data_needs_steps(strategy):
    with strategy.scope():
        model = model_of(layers.Dense(2))
        with pytest.raises(ValueError, match="specify a `steps_per_epoch` value"):
            model.fit(BATCHED.repeat())
        with pytest.raises(ValueError, match="you must specify the number of steps to run"):
            model.evaluate(BATCHED.repeat())


def test_a_model_that_is_not_compiled_neither_trains_nor_evaluates(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((5,)), layers.Dense(2)])
        for call in (model.fit, model.evaluate):
            with pytest.raises(RuntimeError, match="You must compile your model before training/testing"):
                call(X, Y, batch_size=8)


def test_a_loss_that_depends_on_no_weight_is_refused(strategy):
    with strategy.scope():
        model = model_of(layers.Dense(2), layers.Lambda(tf.stop_gradient))
        with pytest.raises(ValueError, match="No gradients provided for any variable"):
            model.fit(X, Y, batch_size=8, verbose=0)
