"""Estimators train, evaluate and predict as a plain loop would, and go on from their checkpoints."""

import glob
import logging

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from openipu.errors import UnsupportedError

v1 = tf.compat.v1
RNG = np.random.default_rng(0)
X = RNG.standard_normal((64, 4)).astype(np.float32)
Y = (X @ np.array([1.0, -2.0, 0.5, 0.0], np.float32) + 1.0).astype(np.float32)
BATCH = 4


def options(ipus=1):
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    return config


@pytest.fixture(autouse=True)
def unconfigured():
    ipu.config.reset_ipu_configuration()
    yield
    ipu.config.reset_ipu_configuration()


def run_config(tmp_path, iterations=4, replicas=1, **kwargs):
    ipus = ipu.ipu_run_config.IPURunConfig(iterations, options(replicas), num_replicas=replicas)
    return ipu.ipu_run_config.RunConfig(ipus, model_dir=str(tmp_path), save_checkpoints_steps=8, **kwargs)


def batches():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH, drop_remainder=True)


def model_fn(features, labels, mode, params):
    with v1.variable_scope("model"):
        w = v1.get_variable("w", [4], initializer=v1.zeros_initializer())
    b = keras.layers.Dense(1, use_bias=True, kernel_initializer="zeros")(features)[:, 0]
    predicted = tf.linalg.matvec(features, w) + b
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"y": predicted, "twice": 2.0 * predicted})
    loss = tf.reduce_mean(tf.square(predicted - labels))
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, eval_metric_ops={"error": v1.metrics.mean_absolute_error(labels, predicted)}
        )
    optimizer = v1.train.MomentumOptimizer(params["rate"], 0.5)
    optimizer = ipu.optimizers.CrossReplicaOptimizer(optimizer) if params.get("replicated") else optimizer
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss))


def reference(steps, replicas=1):
    """Losses and weights of the same training in NumPy."""
    w, u, b = np.zeros(4), np.zeros(4), 0.0
    speeds = [np.zeros(4), np.zeros(4), 0.0]
    losses = []
    for step in range(steps):
        rows = np.arange(step * BATCH * replicas, (step + 1) * BATCH * replicas) % len(X)
        x, error = X[rows], X[rows] @ (w + u) + b - Y[rows]
        losses.append(np.mean(error**2))
        gradients = [2 * x.T @ error / len(x), 2 * x.T @ error / len(x), 2 * np.mean(error)]
        speeds = [0.5 * s + g for s, g in zip(speeds, gradients, strict=True)]
        w, u, b = (value - 0.05 * s for value, s in zip((w, u, b), speeds, strict=True))
    return losses, w + u, b


class Losses(v1.train.SessionRunHook):
    """Collects what the estimator reports."""

    def __init__(self):
        self.seen = []

    def before_run(self, run_context):
        return v1.train.SessionRunArgs("loss:0")

    def after_run(self, run_context, run_values):
        self.seen.append(run_values.results)


@pytest.mark.parametrize("replicas", [1, 2])
def test_training_goes_on_from_the_checkpoint(tmp_path, replicas):
    params = {"rate": 0.05, "replicated": replicas > 1}
    hook = Losses()

    def made():
        config = run_config(tmp_path, replicas=replicas)
        return ipu.ipu_estimator.IPUEstimator(model_fn, config=config, params=params)

    estimator = made()
    estimator.train(lambda: batches().repeat(), steps=8, hooks=[hook])
    losses, *_ = reference(8, replicas)
    np.testing.assert_allclose(hook.seen, np.reshape(losses, (2, 4)).mean(1), rtol=1e-4)
    np.testing.assert_allclose(estimator.get_variable_value("global_step"), 8)
    estimator = made()
    estimator.train(lambda: batches().repeat(), max_steps=16)
    assert int(estimator.get_variable_value("global_step")) == 16
    assert estimator.train(lambda: batches().repeat(), max_steps=16) is estimator
    assert estimator.get_variable_value("model/w/Momentum").shape == (4,)
    assert glob.glob(str(tmp_path / "model.ckpt-16*")) and glob.glob(str(tmp_path / "events*"))


def test_evaluation_and_prediction_in_graphs_of_their_own(tmp_path):
    estimator = ipu.ipu_estimator.IPUEstimator(model_fn, config=run_config(tmp_path), params={"rate": 0.05})
    with pytest.raises(ValueError, match="Could not find trained model"):
        estimator.evaluate(batches, steps=4)
    estimator.train(lambda: batches().repeat(), steps=12)
    _, weights, bias = reference(12)
    predicted = X @ weights + bias
    found = estimator.evaluate(batches, steps=16, name="all")
    np.testing.assert_allclose(found["loss"], np.mean((predicted - Y) ** 2), rtol=1e-4)
    np.testing.assert_allclose(found["error"], np.mean(np.abs(predicted - Y)), rtol=1e-4)
    assert found["global_step"] == 12 and glob.glob(str(tmp_path / "eval_all" / "events*"))
    rows = list(estimator.predict(batches, predict_keys=["y"]))
    np.testing.assert_allclose([row["y"] for row in rows], predicted, rtol=1e-4, atol=1e-5)
    assert rows[0].keys() == {"y"}
    some = list(estimator.predict(batches, num_predictions=6))
    np.testing.assert_allclose([row["twice"] for row in some], 2 * predicted[:6], rtol=1e-4, atol=1e-5)
    first = next(estimator.predict(batches, yield_single_examples=False))
    assert first["y"].shape == (BATCH,)


def test_metrics_and_calls_on_the_host(tmp_path, caplog):
    seen = []

    def note(loss):
        return tf.py_function(lambda value: seen.append(float(value)), [loss], [])

    def on_host(labels, predicted):
        return {"error": v1.metrics.mean_absolute_error(labels, predicted)}

    def model(features, labels, mode):
        plain = model_fn(features, labels, mode, {"rate": 0.05})
        spec = ipu.ipu_estimator.IPUEstimatorSpec
        if mode == tf.estimator.ModeKeys.EVAL:
            return spec(mode, loss=plain.loss, eval_metrics=(on_host, [labels, labels + 1.0]))
        hook = ipu.ipu_session_run_hooks.IPULoggingTensorHook(every_n_iter=2)
        hook.log({"loss": plain.loss})
        return spec(mode, loss=plain.loss, train_op=plain.train_op, host_call=(note, [plain.loss]),
                    training_hooks=[hook])  # fmt: skip

    config = run_config(tmp_path, iterations=1)
    estimator = ipu.ipu_estimator.IPUEstimator(model, config=config, train_batch_size=BATCH, eval_batch_size=BATCH)

    def sized(params):
        return tf.data.Dataset.from_tensor_slices((X, Y)).batch(params["batch_size"], drop_remainder=True)

    with caplog.at_level(logging.INFO, "openipu.tensorflow"):
        estimator.train(sized, steps=3)
    losses, *_ = reference(3)
    np.testing.assert_allclose(seen, losses, rtol=1e-4)
    shown = [record.getMessage() for record in caplog.records if record.getMessage().startswith("loss = ")]
    assert len(shown) == 2 and float(shown[1].split()[2]) == pytest.approx(losses[2], rel=1e-3)
    np.testing.assert_allclose(estimator.evaluate(sized, steps=2)["error"], 1.0, rtol=1e-5)
    with pytest.raises(ValueError, match="must take `params`"):
        estimator.train(batches, steps=1)


def test_what_an_estimator_refuses(tmp_path):
    config = run_config(tmp_path)
    make = ipu.ipu_estimator.IPUEstimator
    with pytest.raises(ValueError, match="`config` must be provided"):
        make(model_fn)
    with pytest.raises(ValueError, match="must include features"):
        make(lambda labels: None, config=config)
    with pytest.raises(UnsupportedError, match="warm_start_from is not supported"):
        make(model_fn, config=config, warm_start_from="elsewhere")
    with pytest.raises(ValueError, match="multiple of the number of replicas"):
        make(model_fn, config=run_config(tmp_path, replicas=2), train_batch_size=3)
    estimator = make(model_fn, config=config, params={"rate": 0.1})
    with pytest.raises(ValueError, match=r"steps \(6\) must be a multiple of iterations_per_loop \(4\)"):
        estimator.train(batches, steps=6)
    with pytest.raises(ValueError, match="input_fn must return Dataset"):
        estimator.train(lambda: X, steps=4)
    with pytest.raises(UnsupportedError, match=r"IPUEstimator\.export_saved_model is not supported"):
        estimator.export_saved_model("elsewhere", None)
    assert not hasattr(estimator, "no_such_method")
    with pytest.raises(ValueError, match="`steps` must be specified"):
        estimator.evaluate(batches)

    def counting(features, labels, mode):
        loss = tf.reduce_mean(labels * v1.get_variable("w", initializer=1.0))
        step = v1.train.get_global_step()
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, train_op=v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
        )

    with pytest.raises(ValueError, match="Illegal increment of the `global_step`"):
        make(counting, config=config).train(batches, steps=4)
    with pytest.raises(ValueError, match="not a valid replicated training graph"):
        config = run_config(tmp_path, replicas=2)
        make(model_fn, config=config, params={"rate": 0.1}).train(batches, steps=4)
    with pytest.raises(UnsupportedError, match=r"tf\.estimator\.Estimator is not supported"):
        tf.estimator.Estimator(model_fn)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_replicas": 2}, ValueError, "requires more than one device"),
        ({"ipu_options": "none"}, TypeError, "must be an IPUConfig instance"),
        ({"ordinal": 1, "ipu_options": 1}, ValueError, r"Only 1 device\(s\) available"),
        ({"num_shards": 2, "ipu_options": 4}, ValueError, r"configured with 2 devices \(1 replicas times 2 shards\)"),
        ({"iterations_per_loop": 0}, ValueError, "iterations_per_loop must be a positive integer"),
    ],
)
def test_configurations_that_contradict_themselves(arguments, error, message):
    if isinstance(arguments.get("ipu_options"), int):
        arguments = arguments | {"ipu_options": options(arguments["ipu_options"])}
    with pytest.raises(error, match=message):
        ipu.ipu_run_config.IPURunConfig(**arguments)


def test_a_pipelined_estimator_trains_evaluates_and_predicts(tmp_path):
    def first(*given):
        features, labels = given if len(given) == 2 else (given[0], None)
        with v1.variable_scope("first"):
            w = v1.get_variable("w", [4], initializer=v1.zeros_initializer())
        return [tf.linalg.matvec(features, w), *([] if labels is None else [labels])]

    def second(hidden, labels=None):
        with v1.variable_scope("second"):
            predicted = hidden + v1.get_variable("b", initializer=0.0)
        return predicted if labels is None else tf.reduce_mean(tf.square(predicted - labels))

    def optimizer_function(loss):
        return ipu.pipelining_ops.OptimizerFunctionOutput(v1.train.GradientDescentOptimizer(0.05), loss)

    def model(mode):
        return ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec(
            mode,
            computational_stages=[first, second],
            gradient_accumulation_count=4,
            eval_metrics_fn=lambda loss: {"loss": tf.reduce_mean(loss)},
            optimizer_function=optimizer_function,
            reduction_method="mean",
        )

    config = ipu.ipu_run_config.RunConfig(
        ipu.ipu_run_config.IPURunConfig(8, options(2), num_shards=2), model_dir=str(tmp_path)
    )
    estimator = ipu.ipu_pipeline_estimator.IPUPipelineEstimator(model, config=config)
    hook = Losses()
    estimator.train(lambda: batches().repeat(), steps=16, hooks=[hook])
    w, b, expected = np.zeros(4), 0.0, []
    for update in range(4):
        rows = np.arange(update * 16, update * 16 + 16)
        error = X[rows] @ w + b - Y[rows]
        expected.append(np.mean(error**2))
        w, b = w - 0.05 * 2 * X[rows].T @ error / 16, b - 0.05 * 2 * np.mean(error)
    np.testing.assert_allclose(hook.seen, np.reshape(expected, (2, 2)).mean(1), rtol=1e-4)
    found = estimator.evaluate(batches, steps=16)
    np.testing.assert_allclose(found["loss"], np.mean((X @ w + b - Y) ** 2), rtol=1e-4)
    predicted = list(estimator.predict(lambda: batches().map(lambda x, _: x)))
    np.testing.assert_allclose(predicted, X @ w + b, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="must not take features"):
        ipu.ipu_pipeline_estimator.IPUPipelineEstimator(model_fn, config=config)
