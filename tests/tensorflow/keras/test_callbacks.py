"""What callbacks see and may do while a model trains on a virtual IPU."""

import csv

import keras
import numpy as np
import pytest
from keras import layers

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((96, 5)).astype(np.float32), RNG.standard_normal((96, 2)).astype(np.float32)


def build():
    return keras.Sequential([layers.Input((5,)), layers.Dense(4, "tanh"), layers.Dense(2)])


@pytest.fixture
def model(strategy):
    with strategy.scope():
        keras.utils.set_random_seed(1)
        made = build()
        made.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"], steps_per_execution=4)
    return made


class Diary(keras.callbacks.Callback):
    """Writes down every call."""

    def __init__(self):
        super().__init__()
        self.entries = []

    def __getattribute__(self, name):
        if name.startswith("on_"):
            return lambda *args, **kwargs: self.entries.append((name, args[0] if args else None))
        return super().__getattribute__(name)


def test_order_and_indices_with_four_steps_an_execution(model):
    diary = Diary()
    model.fit(X, Y, batch_size=8, epochs=1, verbose=0, callbacks=[diary], validation_data=(X, Y))
    outer = ("on_train_begin", "on_train_end", "on_test_begin", "on_test_end")
    assert [entry for entry in diary.entries if entry[0] not in outer] == [
        ("on_epoch_begin", 0),
        ("on_train_batch_begin", 0), ("on_train_batch_end", 3),
        ("on_train_batch_begin", 4), ("on_train_batch_end", 7),
        ("on_train_batch_begin", 8), ("on_train_batch_end", 11),
        ("on_test_batch_begin", 0), ("on_test_batch_end", 3),
        ("on_test_batch_begin", 4), ("on_test_batch_end", 7),
        ("on_test_batch_begin", 8), ("on_test_batch_end", 11),
        ("on_epoch_end", 0),
    ]  # fmt: skip
    names = [name for name, _ in diary.entries]
    assert names[0] == "on_train_begin" and names[-1] == "on_train_end"
    assert names.count("on_test_begin") == names.count("on_test_end") == 1
    diary.entries.clear()
    model.predict(X, batch_size=8, verbose=0, callbacks=[diary])
    assert [name for name, _ in diary.entries] == [
        "on_predict_begin", *["on_predict_batch_begin", "on_predict_batch_end"] * 3, "on_predict_end",
    ]  # fmt: skip


def test_progress_bar_counts_steps(model, capsys):
    model.fit(X, Y, batch_size=8, epochs=2, initial_epoch=1, verbose=1)
    shown = capsys.readouterr().out
    assert "12/12" in shown and "Epoch 2/2" in shown and "Epoch 1/2" not in shown
    model.evaluate(X, Y, batch_size=8, verbose=2)
    assert "12/12" in capsys.readouterr().out


def test_a_callback_sees_and_changes_weights_in_the_middle_of_an_epoch(model, strategy):
    seen = []

    class Middle(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(self.model.get_weights()[0])
            if batch == 7:
                self.model.layers[0].kernel.assign(np.zeros((5, 4)))
                self.model.layers[1].set_weights([np.zeros((4, 2)), np.zeros(2)])

        def on_train_batch_begin(self, batch, logs=None):
            if batch == 8:
                assert not self.model.layers[0].kernel.numpy().any()

    start = model.get_weights()[0]
    model.fit(X, Y, batch_size=8, verbose=0, shuffle=False, callbacks=[Middle()])
    assert not np.allclose(start, seen[0]) and not np.allclose(seen[0], seen[1])
    with strategy.scope():
        again = build()
        again.compile(keras.optimizers.SGD(0.05), "mse", steps_per_execution=4)
    again.set_weights([np.zeros_like(w) if i != 1 else w for i, w in enumerate(again.get_weights())])
    again.layers[0].bias.assign(_bias_before(start, model, strategy))
    again.fit(X[64:], Y[64:], batch_size=8, verbose=0, shuffle=False)
    for one, other in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-7)


def _bias_before(start, model, strategy):
    """The first bias after eight steps: training again from the seed without interference."""
    with strategy.scope():
        keras.utils.set_random_seed(1)
        fresh = build()
        fresh.compile(keras.optimizers.SGD(0.05), "mse", steps_per_execution=4)
    np.testing.assert_array_equal(fresh.get_weights()[0], start)
    fresh.fit(X[:64], Y[:64], batch_size=8, verbose=0, shuffle=False)
    return fresh.layers[0].bias.numpy()


def test_early_stopping_restores_the_best_weights_and_stop_training_ends_an_epoch(model):
    kept = {}
    keep = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: kept.update({epoch: model.get_weights()}))
    stop = keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True, mode="max")
    history = model.fit(
        X, Y, batch_size=8, epochs=9, verbose=0, callbacks=[keep, stop], validation_data=(X, Y), shuffle=False
    )
    assert len(history.epoch) == 2
    for one, other in zip(kept[0], model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    ends = []

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            ends.append(batch)
            self.model.stop_training = batch == 7

    assert len(model.fit(X, Y, batch_size=8, epochs=5, verbose=0, callbacks=[Stop()]).epoch) == 1
    assert ends == [3, 7]


def test_learning_rates_change_between_epochs_without_compiling_again(model, twins):
    def scheduled():
        return [
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.1 / (epoch + 1)),
            keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, mode="max"),
        ]

    stock, twin = twins(build, lambda: {"optimizer": keras.optimizers.SGD(0.05), "loss": "mse"}, 4)
    logs = [
        m.fit(X, Y, batch_size=8, epochs=4, verbose=0, callbacks=scheduled(), shuffle=False).history
        for m in (stock, twin)
    ]
    assert len(twin._ipu.compiled) == 1
    for name, value in logs[0].items():
        np.testing.assert_allclose(logs[1][name], value, rtol=1e-5, err_msg=name)
    twin.optimizer.learning_rate = 0.0
    before = twin.get_weights()
    twin.fit(X, Y, batch_size=8, verbose=0)
    np.testing.assert_array_equal(before[0], twin.get_weights()[0])


def test_files_that_callbacks_write(model, strategy, tmp_path):
    checkpoints = [tmp_path / "model.keras", tmp_path / "best.weights.h5"]
    model.fit(
        X, Y, batch_size=8, epochs=2, verbose=0,
        callbacks=[
            keras.callbacks.ModelCheckpoint(checkpoints[0]),
            keras.callbacks.ModelCheckpoint(checkpoints[1], "loss", save_weights_only=True, save_best_only=True),
            keras.callbacks.CSVLogger(tmp_path / "log.csv"),
            keras.callbacks.TerminateOnNaN(),
        ],
    )  # fmt: skip
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    assert [row["epoch"] for row in rows] == ["0", "1"] and float(rows[1]["loss"]) > 0
    stored = keras.models.load_model(checkpoints[0])
    assert not hasattr(stored, "_ipu_strategy")
    for one, other in zip(model.get_weights(), stored.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    with strategy.scope():
        other = build()
    other.load_weights(checkpoints[1])
    np.testing.assert_array_equal(model.get_weights()[0], other.get_weights()[0])


def test_training_that_was_interrupted_goes_on_from_its_backup(model, strategy, tmp_path):
    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path / "backup")

    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, batch_size=8, epochs=4, verbose=0, shuffle=False, callbacks=[backup(), Interrupt()])
    with strategy.scope():
        resumed = build()
        resumed.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"], steps_per_execution=4)
    history = resumed.fit(X, Y, batch_size=8, epochs=4, verbose=0, shuffle=False, callbacks=[backup()])
    assert history.epoch == [2, 3]
    model.fit(X, Y, batch_size=8, epochs=4, initial_epoch=2, verbose=0, shuffle=False)
    for one, other in zip(model.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6)


def test_training_ends_on_nan(model):
    class Ends(keras.callbacks.Callback):
        batches = 0

        def on_train_batch_end(self, batch, logs=None):
            self.batches += 1

    ends = Ends()
    x = X.copy()
    x[40] = np.nan
    model.fit(x, Y, batch_size=8, verbose=0, shuffle=False, callbacks=[keras.callbacks.TerminateOnNaN(), ends])
    assert ends.batches == 2


def test_tensorboard_writes_what_was_logged(model, tmp_path):
    history = model.fit(X, Y, batch_size=8, epochs=2, verbose=0, callbacks=[keras.callbacks.TensorBoard(tmp_path)])
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    events = EventAccumulator(str(tmp_path / "train"))
    events.Reload()
    written = [float(tensor_util.make_ndarray(e.tensor_proto)) for e in events.Tensors("epoch_loss")]
    np.testing.assert_allclose(written, history.history["loss"], rtol=1e-6)
