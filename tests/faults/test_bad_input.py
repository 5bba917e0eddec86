"""Labels and indices that name nothing are refused before they ruin weights, as stock frameworks refuse them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

import poptorch
from tests.tensorflow.conftest import strategy  # noqa: F401


def embedding(classes=5, rows=20):
    return keras.Sequential(
        [
            keras.Input((3,), dtype="int32"),
            keras.layers.Embedding(rows, 4),
            keras.layers.Flatten(),
            keras.layers.Dense(classes),
        ]
    )


def compiled(model, steps=2):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"], steps_per_execution=steps)
    return model


def data(rows=64):
    noise = np.random.default_rng(0)
    return noise.integers(0, 20, (rows, 3)).astype(np.int32), noise.integers(0, 5, rows).astype(np.int32)


BAD = {"label": (1, 5), "negative label": (1, -1), "index": (0, 20), "negative index": (0, -21)}


@pytest.mark.parametrize("how", BAD)
def test_keras_refuses_what_stock_keras_refuses(strategy, how):  # noqa: F811
    part, value = BAD[how]
    with strategy.scope():
        model = compiled(embedding())
    before = model.get_weights()
    arrays = data()
    arrays[part][40] = value
    calls = {
        "fit": lambda: model.fit(*arrays, batch_size=4, verbose=0),
        "dataset": lambda: model.fit(
            tf.data.Dataset.from_tensor_slices(tuple(a[36:44] for a in arrays)).batch(4, True), verbose=0
        ),
        "evaluate": lambda: model.evaluate(*(a[36:44] for a in arrays), batch_size=4, verbose=0),
        "batch": lambda: model.train_on_batch(*(a[40:44] for a in arrays)),
    }
    for name, call in calls.items():
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"Received: {value}"):
            call()
            pytest.fail(name)
    for mine, theirs in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    good = data()
    good[0][0] = -1  # Counts from the end, as in stock Keras.
    model.fit(*good, batch_size=4, verbose=0)
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_a_setting_looks_at_every_batch(strategy, monkeypatch):  # noqa: F811
    x, y = data(80)
    y[79] = 99
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(4, True)
    for wish, refused in (("off", False), ("first", False), ("all", True)):
        monkeypatch.setenv("OPENIPU_CHECK_INDICES", wish)
        with strategy.scope():
            model = compiled(embedding(), 1)
        if refused:
            with pytest.raises(tf.errors.InvalidArgumentError, match="labels of 5 classes"):
                model.fit(batches, verbose=0)
        else:
            model.fit(batches, verbose=0)


@pytest.mark.parametrize("loss", [keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)])
def test_classes_that_are_left_out_are_no_mistake(strategy, loss):  # noqa: F811
    x, y = data(8)
    y[3] = -1
    with strategy.scope():
        model = embedding()
        model.compile("sgd", loss)
    model.fit(x, y, batch_size=4, verbose=0)
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_functions_run_by_the_strategy(strategy):  # noqa: F811
    with strategy.scope():
        table = tf.Variable(np.eye(4, dtype=np.float32))

    @tf.function
    def look(i):
        return tf.gather(table, i)

    assert strategy.run(look, args=(tf.constant([1, 3]),)).shape == (2, 4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="indices of 4 rows"):
        strategy.run(look, args=(tf.constant([1, 4]),))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Embedding(20, 4), torch.nn.Flatten(), torch.nn.Linear(12, 5))

    def forward(self, x, y):
        out = self.body(x)
        return out, torch.nn.functional.cross_entropy(out, y)


def test_poptorch_refuses_what_torch_refuses():
    x, y = (torch.from_numpy(a).long() for a in data(8))
    model = Net()
    executor = poptorch.trainingModel(model)
    executor(x, y)
    before = [p.detach().clone() for p in model.parameters()]
    for part, value in ((1, 5), (1, -1), (0, 20), (0, -1)):
        bad = [x.clone(), y.clone()]
        bad[part][3] = value
        with pytest.raises(IndexError):
            Net()(*bad)
        with pytest.raises(IndexError, match=f"Received: {value}"):
            executor(*bad)
    for mine, theirs in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(mine.detach(), theirs, rtol=0, atol=0)
    left_out = y.clone()
    left_out[0] = -100
    assert torch.isfinite(executor(x, left_out)[1])
    executor.destroy()


@pytest.mark.parametrize("name, value", [("batch_size", 2.5), ("batch_size", "4"), ("batch_size", 0),
                                         ("steps_per_epoch", 1.5), ("steps_per_epoch", "2")])  # fmt: skip
def test_sizes_that_are_no_numbers_are_refused_by_name(strategy, name, value):  # noqa: F811
    with strategy.scope():
        model = compiled(embedding())
    with pytest.raises(ValueError, match=f"{name} must be a positive integer. Received: {name}={value!r}"):
        model.fit(*data(), **{name: value})


@pytest.mark.parametrize("value", [0, -1, 1.5, "3"])
def test_steps_per_execution_is_refused_by_name(strategy, value):  # noqa: F811
    with strategy.scope(), pytest.raises(ValueError, match="steps_per_execution must be a positive integer"):
        compiled(embedding(), value)
