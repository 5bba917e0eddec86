"""Programs of Keras, of strategies and of TensorFlow 1 leave a report where POPLAR_ENGINE_OPTIONS says."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow.compat.v1 as tf1
from tensorflow.python import ipu

from openipu.report.reading import read
from openipu.report.recording import finish_all

X = np.random.default_rng(0).standard_normal((16, 6)).astype(np.float32)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    options = {"autoReport.all": "true", "autoReport.directory": str(tmp_path / "report")}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    return tmp_path / "report"


def reports(folder):
    finish_all()
    return {read(path)["program"]["name"]: read(path) for path in sorted(folder.glob("tf_report__*__*"))}


def test_fit_and_predict_of_keras(strategy, folder):
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, name="hidden"), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=2)
        model.fit(X, X[:, :1], batch_size=4, verbose=0)
        model.predict(X, batch_size=4)
    found = reports(folder)
    (train,) = [report for name, report in found.items() if name.endswith("/train")]
    assert len(found) == 2 and train["program"]["training"] and train["plan"]["device_iterations"] == 2
    assert train["measured"]["executions"] == 2 and train["program"]["micro_batch"] == 4
    assert any(operation["layer"].endswith("hidden") for operation in train["operations"])


def test_functions_of_a_strategy(strategy, folder):
    with strategy.scope():
        weight = tf.Variable(tf.ones((6, 3)))

    @tf.function
    def product(x):
        return tf.matmul(x, weight)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(product(x)))
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    strategy.run(product, (tf.constant(X),))
    strategy.run(step, (tf.constant(X),))
    found = reports(folder).values()
    # Loops of the user's own have no update apart from their steps.
    assert len(found) == 2 and not any(report["program"]["training"] for report in found)
    assert all("matmul" in {operation["kind"] for operation in report["operations"]} for report in found)


def test_a_computation_of_tensorflow_1(folder):
    ipu.config.reset_ipu_configuration()
    opts = ipu.utils.create_ipu_config()
    ipu.utils.configure_ipu_system(ipu.utils.auto_select_ipus(opts, 1))
    with tf1.Graph().as_default(), tf1.Session() as session:
        with tf1.device("cpu"):
            x = tf1.placeholder(tf.float32, [16, 6])
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            (made,) = ipu.ipu_compiler.compile(lambda x: tf.reduce_sum(x, 1), [x])
        session.run(made, {x: X})
    ipu.config.reset_ipu_configuration()
    (found,) = reports(folder).values()
    assert found["measured"]["executions"] == 1
