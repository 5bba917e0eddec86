"""All losses and metrics of Keras have on a virtual IPU the values they have elsewhere."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, losses, metrics

REGRESSION = {
    "mse": losses.MeanSquaredError, "mae": losses.MeanAbsoluteError, "mape": losses.MeanAbsolutePercentageError,
    "msle": losses.MeanSquaredLogarithmicError, "cosine": losses.CosineSimilarity, "huber": losses.Huber,
    "log_cosh": losses.LogCosh, "poisson": losses.Poisson, "hinge": losses.Hinge,
    "squared_hinge": losses.SquaredHinge, "categorical_hinge": losses.CategoricalHinge, "tversky": losses.Tversky,
    "dice": losses.Dice, "kl": losses.KLDivergence, "binary": losses.BinaryCrossentropy,
    "binary_focal": losses.BinaryFocalCrossentropy, "categorical": losses.CategoricalCrossentropy,
    "categorical_focal": losses.CategoricalFocalCrossentropy,
    "generalized": losses.CategoricalGeneralizedCrossEntropy,
}  # fmt: skip


def test_every_loss_of_dense_targets(side_by_side):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 6)).astype(np.float32)
    y = np.eye(4, dtype=np.float32)[rng.integers(0, 4, 40)]
    targets = {"generalized": rng.integers(0, 4, 40)}

    def build():
        inputs = layers.Input((6,))
        return keras.Model(inputs, {n: layers.Dense(4, "softmax", name=n)(inputs) for n in REGRESSION})

    def compile_with():
        return {"optimizer": keras.optimizers.SGD(0.01), "loss": {n: loss() for n, loss in REGRESSION.items()}}

    _, model = side_by_side(
        build, (x, {n: targets.get(n, y) for n in REGRESSION}), compile_with, steps=5, per_execution=5
    )
    assert set(model.history.history) == {"loss"} | {f"{n}_loss" for n in REGRESSION}


def test_sparse_crossentropy_ctc_and_circle(side_by_side):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 6, 3)).astype(np.float32)

    def build():
        inputs = layers.Input((6, 3))
        flat = layers.Flatten()(inputs)
        sequence = layers.Dense(5, name="ctc")(inputs)
        circle = layers.UnitNormalization(name="circle")(layers.Dense(4)(flat))
        return keras.Model(inputs, {"sparse": layers.Dense(4, name="sparse")(flat), "ctc": sequence, "circle": circle})

    def compile_with():
        return {
            "optimizer": keras.optimizers.SGD(0.01),
            "loss": {
                "sparse": losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=3),
                "ctc": losses.CTC(),
                "circle": losses.Circle(),
            },
        }

    targets = {"sparse": rng.integers(0, 4, 40), "ctc": rng.integers(1, 5, (40, 3)), "circle": rng.integers(0, 3, 40)}
    side_by_side(build, (x, targets), compile_with, steps=5, per_execution=5, tolerance=2e-5)


DENSE_METRICS = [
    metrics.MeanSquaredError, metrics.RootMeanSquaredError, metrics.MeanAbsoluteError,
    metrics.MeanAbsolutePercentageError, metrics.MeanSquaredLogarithmicError, metrics.CosineSimilarity,
    metrics.LogCoshError, metrics.R2Score, metrics.Hinge, metrics.SquaredHinge, metrics.CategoricalHinge,
    metrics.KLDivergence, metrics.Poisson, metrics.BinaryCrossentropy, metrics.CategoricalCrossentropy,
    metrics.AUC, metrics.Precision, metrics.Recall, metrics.TruePositives, metrics.TrueNegatives,
    metrics.FalsePositives, metrics.FalseNegatives, metrics.BinaryAccuracy, metrics.CategoricalAccuracy,
    metrics.TopKCategoricalAccuracy, metrics.F1Score, metrics.FBetaScore,
    lambda: metrics.PrecisionAtRecall(0.5), lambda: metrics.RecallAtPrecision(0.5),
    lambda: metrics.SensitivityAtSpecificity(0.5), lambda: metrics.SpecificityAtSensitivity(0.5),
    lambda: metrics.BinaryIoU([0, 1], 0.3), lambda: metrics.OneHotIoU(4, [0, 1]), lambda: metrics.OneHotMeanIoU(4),
]  # fmt: skip
CLASS_METRICS = [
    lambda: metrics.SparseCategoricalCrossentropy(), lambda: metrics.SparseCategoricalAccuracy(),
    lambda: metrics.SparseTopKCategoricalAccuracy(2), lambda: metrics.MeanIoU(4, sparse_y_pred=False),
    lambda: metrics.IoU(4, [1], sparse_y_pred=False),
]  # fmt: skip


class Share(metrics.Metric):
    """A metric of the user's own, written with TensorFlow."""

    def __init__(self, name="share", **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(tf.reduce_sum(tf.cast(y_pred > 0.25, tf.float32)))
        self.count.assign_add(tf.cast(tf.size(y_pred), tf.float32))

    def result(self):
        return self.total / self.count


@pytest.mark.parametrize("kind", ["dense", "classes"])
def test_every_metric(kind, side_by_side):
    rng = np.random.default_rng(0)
    x, classes = rng.standard_normal((40, 6)).astype(np.float32), rng.integers(0, 4, 40)
    y, made, loss = classes, CLASS_METRICS, "sparse_categorical_crossentropy"
    if kind == "dense":
        y, made, loss = np.eye(4, dtype=np.float32)[classes], [*DENSE_METRICS, Share], "categorical_crossentropy"

    def build():
        return keras.Sequential([layers.Input((6,)), layers.Dense(4, "softmax")])

    def compile_with():
        return {"optimizer": keras.optimizers.SGD(0.01), "loss": loss, "metrics": [metric() for metric in made]}

    stock, model = side_by_side(build, (x, y), compile_with, steps=5, per_execution=5)
    one = stock.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
    other = model.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_allclose(other[name], one[name], rtol=1e-5, atol=1e-6, err_msg=name)


class Penalised(layers.Layer):
    """A layer with a loss of its own, an activity regulariser and a metric inside."""

    def __init__(self, **kwargs):
        super().__init__(activity_regularizer=keras.regularizers.L2(0.01), **kwargs)
        self.mean = metrics.Mean(name="inside")

    def call(self, x):
        self.add_loss(0.1 * tf.reduce_mean(tf.abs(x)))
        self.mean.update_state(x)
        return x * 1.5


def own_loss(y_true, y_pred):
    return tf.reduce_mean(tf.math.log1p(tf.square(y_true - y_pred)), axis=-1)


def test_regularisers_added_losses_and_weights_of_samples(side_by_side):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 6)), rng.standard_normal((40, 3))

    def build():
        regularised = layers.Dense(
            4, kernel_regularizer="L1L2", bias_regularizer="L2", kernel_constraint="max_norm", activation="tanh"
        )
        return keras.Sequential([layers.Input((6,)), regularised, Penalised(), layers.Dense(3)])

    def compile_with():
        optimizer = keras.optimizers.SGD(0.05)
        return {"optimizer": optimizer, "loss": own_loss, "metrics": ["mae"], "weighted_metrics": ["mse"]}

    stock, model = side_by_side(build, (x, y), compile_with, steps=5, per_execution=5, sample_weight=rng.random(40))
    weights = rng.random(40)
    np.testing.assert_allclose(
        model.evaluate(x, y, batch_size=8, sample_weight=weights, verbose=0),
        stock.evaluate(x, y, batch_size=8, sample_weight=weights, verbose=0),
        rtol=1e-5,
    )


@pytest.mark.parametrize("target", ["integers", "one_hot"])
def test_class_weight(target, side_by_side):
    rng = np.random.default_rng(0)
    x, classes = rng.standard_normal((40, 6)), rng.integers(0, 3, 40)
    y, loss = classes, "sparse_categorical_crossentropy"
    if target == "one_hot":
        y, loss = np.eye(3)[classes], "categorical_crossentropy"

    def build():
        return keras.Sequential([layers.Input((6,)), layers.Dense(3, "softmax")])

    side_by_side(
        build, (x, y), lambda: {"optimizer": "sgd", "loss": loss, "weighted_metrics": ["accuracy"]}, steps=5,
        per_execution=5, class_weight={0: 1.0, 1: 5.0, 2: 0.5},
    )  # fmt: skip


@pytest.mark.parametrize("target", ["integers", "column", "one_hot"])
def test_class_weight_of_a_dataset(target, strategy):
    rng = np.random.default_rng(0)
    x, classes = rng.standard_normal((40, 6)).astype("float32"), rng.integers(0, 3, 40)
    y = {"integers": classes, "column": classes[:, None], "one_hot": np.eye(3, dtype="float32")[classes]}[target]
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(8, drop_remainder=True)
    weights, losses = {0: 1.0, 1: 5.0}, []
    for data in ({"x": x, "y": y, "batch_size": 8}, {"x": dataset}):
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = keras.Sequential([layers.Input((6,)), layers.Dense(3, "softmax")])
            model.compile("sgd", f"{'' if target == 'one_hot' else 'sparse_'}categorical_crossentropy")
        losses.append(model.fit(**data, class_weight=weights, shuffle=False, verbose=0).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-6)
    weighted = dataset.map(lambda x, y: (x, y, tf.ones(8)))
    with pytest.raises(ValueError, match="`class_weight` and `sample_weight` at the same time"):
        model.fit(weighted, class_weight=weights, verbose=0)


@pytest.mark.parametrize(("policy", "tolerance"), [("mixed_float16", 1e-3), ("mixed_bfloat16", 1e-2)])
def test_mixed_precision(policy, tolerance, side_by_side):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((80, 6)), rng.integers(0, 3, 80)

    def build():
        with _policy(policy):
            return keras.Sequential([
                layers.Input((6,)), layers.Dense(8, "relu"), layers.BatchNormalization(),
                layers.Dense(3, "softmax", dtype="float32"),
            ])  # fmt: skip

    def compile_with():
        # Stock Keras without XLA rounds and overflows at other places.
        optimizer = keras.optimizers.SGD(0.05)
        return {"optimizer": optimizer, "loss": "sparse_categorical_crossentropy", "jit_compile": True}

    stock, model = side_by_side(
        build, (x, y), compile_with, steps=10, per_execution=5, tolerance=tolerance,
    )  # fmt: skip
    assert type(model.optimizer) is type(stock.optimizer)
    assert [v.dtype for v in model.trainable_variables] == ["float32"] * len(model.trainable_variables)


def test_loss_scaling_skips_updates_that_overflow(strategy):
    """The scale is halved until gradients fit into float16, and no overflowed update reaches the weights."""
    with strategy.scope(), _policy("mixed_float16"):
        model = keras.Sequential([layers.Input((4,)), layers.Dense(1)])
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1e-3), initial_scale=2.0**24)
        model.compile(optimizer, "mse", steps_per_execution=10)
    model.fit(np.ones((160, 4)), np.full((160, 1), 3.0), batch_size=8, verbose=0)
    assert np.isfinite(model.get_weights()[0]).all()
    assert float(model.optimizer.dynamic_scale) < 2.0**24
    assert 0 < int(model.optimizer.inner_optimizer.iterations) < 20


class _policy:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.before = keras.config.dtype_policy()
        keras.config.set_dtype_policy(self.name)

    def __exit__(self, *_):
        keras.config.set_dtype_policy(self.before)
