"""Replicas, accumulation and pipelines train like stock Keras does one micro-batch at a time."""

import keras
import numpy as np
import pytest
from tensorflow.python import ipu

from tests.tensorflow.keras import parallel
from tests.tensorflow.keras.parallel import BATCH

SCHEDULES = list(ipu.pipelining_ops.PipelineSchedule)


def trained(ipus, elements, steps_per_execution, prepare, batch_norm=False, epochs=1, callbacks=None):
    """A model trained on IPUs and the history."""
    x, y = parallel.data(elements)
    with parallel.ipus(ipus):
        model = parallel.build(batch_norm)
        prepare(model)
        model.compile(parallel.optimizer(), "mse", metrics=["mae"], steps_per_execution=steps_per_execution)
        history = model.fit(x, y, batch_size=BATCH, shuffle=False, epochs=epochs, verbose=0, callbacks=callbacks)
        model.get_weights()
    return model, history


def expected(elements, batch_norm=False, **how):
    model = parallel.build(batch_norm)
    losses = parallel.train_reference(model, *parallel.data(elements), **how)
    return model, losses


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("replicas", [2, 4, 16])
def test_replicas_train_like_one_device_with_summed_gradients(replicas, batch_norm):
    model, _ = trained(replicas, 6 * replicas, 3, lambda m: None, batch_norm)
    parallel.assert_same_weights(expected(6 * replicas, batch_norm, replicas=replicas)[0], model)


@pytest.mark.parametrize("method", ["sum", "mean", "RUNNING_MEAN"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_accumulation_trains_like_several_gradients_at_once(method, replicas):
    model, _ = trained(replicas, 16 * replicas, 8, lambda m: m.set_gradient_accumulation_options(4, method))
    want, _ = expected(16 * replicas, replicas=replicas, accumulation=4, mean=method != "sum")
    parallel.assert_same_weights(want, model)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("stages", "replicas"), [(2, 1), (4, 1), (2, 2), (2, 4), (4, 2)])
def test_a_pipeline_trains_like_accumulation(schedule, stages, replicas):
    def prepare(model):
        model.set_pipeline_stage_assignment([i * stages // 4 for i in range(4)])
        model.set_pipelining_options(8, pipeline_schedule=schedule)

    model, _ = trained(stages * replicas, 16 * replicas, 16, prepare)
    parallel.assert_same_weights(expected(16 * replicas, replicas=replicas, accumulation=8)[0], model)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_pipeline_with_batch_normalisation_keeps_statistics_of_micro_batches(schedule, replicas):
    def prepare(model):
        model.set_pipeline_stage_assignment([0, 0, 0, 1, 1, 1])
        model.set_pipelining_options(8, pipeline_schedule=schedule, gradient_accumulation_reduction_method="mean")

    model, _ = trained(2 * replicas, 16 * replicas, 8, prepare, batch_norm=True)
    want, _ = expected(16 * replicas, True, replicas=replicas, accumulation=8, mean=True)
    parallel.assert_same_weights(want, model)
    # The first layer sees the data itself, so NumPy can follow its moving averages: those of the first replica.
    x, _ = parallel.data(16 * replicas)
    mean, variance = np.zeros(6), np.ones(6)
    for element in x.reshape(-1, replicas, BATCH, 6)[:, 0]:
        mean = 0.9 * mean + 0.1 * element.mean(0)
        variance = 0.9 * variance + 0.1 * element.var(0)
    np.testing.assert_allclose(model.layers[0].moving_mean, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.layers[0].moving_variance, variance, rtol=1e-5)


def test_logs_are_those_of_the_last_replica_unless_reduced():
    losses = {}
    for method in ("NONE", "LIST", "SUM", "MEAN"):
        _, history = trained(4, 8, 2, lambda m, method=method: m.set_replication_options(method))
        losses[method] = np.asarray(history.history["loss"][0])
    _, reference = expected(8, replicas=4)
    by_replica = np.array(reference).reshape(2, 4).mean(0)
    np.testing.assert_allclose(losses["LIST"], by_replica, rtol=1e-5)
    np.testing.assert_allclose(losses["NONE"], by_replica[-1], rtol=1e-5)
    np.testing.assert_allclose(losses["SUM"], by_replica.sum(), rtol=1e-5)
    np.testing.assert_allclose(losses["MEAN"], by_replica.mean(), rtol=1e-5)


def test_predictions_are_in_the_order_of_the_data():
    x, _ = parallel.data(12)
    stock = parallel.build()
    with parallel.ipus(4):
        model = parallel.build()
        model.compile("sgd", "mse", steps_per_execution=3)
        got = model.predict(x, batch_size=BATCH, verbose=0)
    np.testing.assert_allclose(got, stock.predict(x, verbose=0), rtol=1e-5, atol=1e-6)


def test_pipelined_evaluation_and_prediction_match_stock_keras():
    x, y = parallel.data(8)
    stock = parallel.build()
    stock.compile("sgd", "mse", metrics=["mae"])
    with parallel.ipus(2):
        model = parallel.build()
        model.set_pipeline_stage_assignment([0, 0, 1, 1])
        model.compile("sgd", "mse", metrics=["mae"], steps_per_execution=4)
        np.testing.assert_allclose(
            model.evaluate(x, y, batch_size=BATCH, verbose=0), stock.evaluate(x, y, verbose=0), rtol=1e-5
        )
        got = model.predict(x, batch_size=BATCH, verbose=0)
    np.testing.assert_allclose(got, stock.predict(x, verbose=0), rtol=1e-5, atol=1e-6)


def test_an_accumulated_outfeed_reports_the_mean_of_the_batches_losses():
    def prepare(model):
        model.set_pipeline_stage_assignment([0, 0, 1, 1])
        model.set_pipelining_options(8, accumulate_outfeed=True)

    _, history = trained(2, 16, 16, prepare)
    _, losses = expected(16, accumulation=8)
    np.testing.assert_allclose(history.history["loss"][0], np.mean(losses), rtol=1e-5)


def test_replicas_drop_different_units():
    class AlwaysDropping(keras.Model):
        def __init__(self):
            super().__init__()
            self.dropout = keras.layers.Dropout(0.5, seed=1)

        def call(self, x):
            return self.dropout(x, training=True)

    with parallel.ipus(2):
        dropped = AlwaysDropping().predict(np.ones((2, 200), "float32"), batch_size=1, verbose=0)
    assert 50 < ((dropped[0] == 0) != (dropped[1] == 0)).sum() < 150


def test_asynchronous_callbacks_hear_of_every_step_and_replica():
    heard = []

    class Listener(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            heard.append((batch, logs["loss"]))

    trained(2, 8, 4, lambda m: m.set_asynchronous_callbacks(True), callbacks=[Listener()])
    assert [batch for batch, _ in heard] == [0, 0, 1, 1, 2, 2, 3, 3]
    _, losses = expected(8, replicas=2)
    running = np.cumsum(np.array(losses).reshape(4, 2), axis=0) / np.arange(1, 5)[:, None]
    np.testing.assert_allclose([loss for _, loss in heard], running.reshape(-1), rtol=1e-5)


def test_a_loaded_model_keeps_stages_and_options(tmp_path):
    x, y = parallel.data(16)
    with parallel.ipus(2):
        model = parallel.build()
        model.set_pipeline_stage_assignment([0, 0, 1, 1])
        model.set_pipelining_options(8, device_mapping=[1, 0], gradient_accumulation_reduction_method="mean")
        model.compile("sgd", "mse", steps_per_execution=8)
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        assert [a.pipeline_stage for a in loaded.get_pipeline_stage_assignment()] == [0, 0, 1, 1]
        assert loaded._ipu.options == model._ipu.options
        for one in (model, loaded):
            one.compile(parallel.optimizer(), "mse", steps_per_execution=8)
            one.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
        parallel.assert_same_weights(model, loaded, 0)
    outside = keras.models.load_model(tmp_path / "model.keras")
    assert not hasattr(outside, "set_pipelining_options")


def test_automatic_stages_train_too():
    def prepare(model):
        assert model.auto_pipeline_stage_assignment(2, batch_size=BATCH, print_fn=None) == [0, 0, 1, 1]
        model.set_pipelining_options(4)

    model, _ = trained(2, 8, 4, prepare)
    parallel.assert_same_weights(expected(8, accumulation=4)[0], model)


def test_the_progress_bar_counts_steps_of_a_replica():
    counts = {}

    class Counter(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            counts["steps"] = self.params["steps"]

    trained(4, 40, 5, lambda m: None, callbacks=[Counter()])
    assert counts["steps"] == 10


@pytest.mark.filterwarnings("ignore:Gradients do not exist for variables:UserWarning")
def test_accumulators_of_another_dtype_beside_a_variable_without_gradient():
    class Unused(keras.layers.Layer):
        def build(self, shape):
            self.unused = self.add_weight(shape=(2,), name="unused")

        def call(self, x):
            return x

    def trained_with(dtype):
        x, y = parallel.data(8)
        with parallel.ipus(1):
            keras.utils.set_random_seed(1)
            model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8), Unused(), keras.layers.Dense(3)])
            model.set_gradient_accumulation_options(4, dtype=dtype)
            model.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=8)
            model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
            return model.get_weights()[0]

    wide, half = trained_with(None), trained_with("float16")
    each = trained_with(lambda variable: "float16" if variable.shape.rank == 2 else None)
    assert 0 < np.abs(wide - half).max() < 1e-2
    assert 0 < np.abs(wide - each).max() < 1e-2
