"""Pipelined Keras models with stages on devices of their own, against stock Keras."""

import keras
import numpy as np
import pytest
from tensorflow.python import ipu

from openipu.runtime import PipelineEngine
from tests.tensorflow.keras import parallel
from tests.tensorflow.keras.parallel import BATCH

SCHEDULES = list(ipu.pipelining_ops.PipelineSchedule)


def engine_of(model, mode):
    return next(c.session.engine for key, c in model._ipu.compiled.items() if key[0] == mode)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("stages", "replicas"), [(2, 1), (4, 1), (2, 2)])
def test_stages_on_their_own_devices_train_like_stock_keras(schedule, stages, replicas):
    x, y = parallel.data(16 * replicas)
    stock = parallel.build(batch_norm=True)
    losses = parallel.train_reference(stock, x, y, replicas, 8)
    with parallel.ipus(stages * replicas):
        model = parallel.build(batch_norm=True)
        model.set_pipeline_stage_assignment([i * stages // 6 for i in range(6)])
        model.set_pipelining_options(8, pipeline_schedule=schedule)
        model.compile(parallel.optimizer(), "mse", steps_per_execution=8)
        history = model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
        engine = engine_of(model, "train")
        assert isinstance(engine, PipelineEngine)
        assert len({d for d in engine.executable.homes[0]}) == stages
    np.testing.assert_allclose(history.history["loss"][0], np.mean(losses[replicas - 1 :: replicas]), rtol=1e-5)
    parallel.assert_same_weights(stock, model)


def test_inference_and_dropout_over_stages():
    x, y = parallel.data(8)
    with parallel.ipus(2):
        inputs = keras.Input((6,))
        with keras.ipu.PipelineStage(0):
            hidden = keras.layers.Dropout(0.5, seed=1)(keras.layers.Dense(8, activation="relu")(inputs))
        with keras.ipu.PipelineStage(1):
            outputs = keras.layers.Dense(3)(keras.layers.Concatenate()([hidden, inputs]))
        model = keras.Model(inputs, outputs)
        model.set_pipelining_options(4)
        model.compile("sgd", "mse", metrics=["mae"], steps_per_execution=4)
        before = model.get_weights()
        model.fit(x, y, batch_size=BATCH, verbose=0)
        assert any((a != b).any() for a, b in zip(before, model.get_weights(), strict=True))
        predicted = model.predict(x, batch_size=BATCH, verbose=0)
        assert isinstance(engine_of(model, "predict"), PipelineEngine)
        loss, mae = model.evaluate(x, y, batch_size=BATCH, verbose=0)
        expected = np.asarray(model(x))
    np.testing.assert_allclose(predicted, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose([loss, mae], [((expected - y) ** 2).mean(), np.abs(expected - y).mean()], rtol=1e-5)


@pytest.mark.parametrize("replicas", [2, 4, 8])
def test_replicas_are_spread_over_the_devices(replicas):
    x, y = parallel.data(4 * replicas)
    stock = parallel.build()
    parallel.train_reference(stock, x, y, replicas)
    with parallel.ipus(replicas):
        model = parallel.build()
        model.compile(parallel.optimizer(), "mse", steps_per_execution=4)
        model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
        executable = engine_of(model, "train").executable
        assert len(executable.places.feeds.device_set) == min(replicas, 4)
    parallel.assert_same_weights(stock, model)
