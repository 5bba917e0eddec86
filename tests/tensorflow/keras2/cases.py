"""Keras 2 models on a virtual IPU beside stock Keras 2; run by test_keras2.py with TF_USE_LEGACY_KERAS=1."""

import numpy as np
import pytest
import tensorflow as tf

keras = tf.keras
layers = keras.layers
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((80, 6)).astype(np.float32), RNG.standard_normal((80, 2)).astype(np.float32)
LABELS = RNG.integers(0, 4, 80)


def twins(strategy, build, compile_with, per_execution=5):
    keras.utils.set_random_seed(7)
    stock = build()
    stock.compile(**compile_with())
    with strategy.scope():
        keras.utils.set_random_seed(7)
        model = build()
        model.set_weights(stock.get_weights())
        model.compile(**compile_with(), steps_per_execution=per_execution)
    return stock, model


def agree(stock, model, tolerance=1e-5):
    for weight, one, other in zip(stock.weights, stock.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance * np.abs(one).max(), err_msg=weight.name)


def side_by_side(strategy, build, data, compile_with, tolerance=1e-5, **fit):
    stock, model = twins(strategy, build, compile_with)
    logs = [m.fit(*data, batch_size=8, shuffle=False, verbose=0, **fit).history for m in (stock, model)]
    assert logs[0].keys() == logs[1].keys()
    for name, value in logs[0].items():
        np.testing.assert_allclose(logs[1][name], value, rtol=tolerance, atol=1e-6, err_msg=name)
    agree(stock, model, tolerance)
    return stock, model


def mlp():
    return keras.Sequential([layers.InputLayer((6,)), layers.Dense(8, "tanh"), layers.Dense(2)])


def by_class(optimizer):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return lambda: {"optimizer": optimizer(), "loss": loss, "metrics": ["accuracy"]}


def test_this_is_keras_2():
    assert issubclass(keras.Model, __import__("tf_keras").Model)


MODELS = {
    "cnn": ((8, 8, 1), [lambda: layers.Conv2D(4, 3, activation="tanh"), lambda: layers.AveragePooling2D(),
                        lambda: layers.DepthwiseConv2D(3), lambda: layers.Flatten()]),
    "lstm": ((5, 3), [lambda: layers.LSTM(6, return_sequences=True), lambda: layers.GRU(5)]),
    "batch_norm": ((6,), [lambda: layers.Dense(8, use_bias=False), lambda: layers.BatchNormalization(momentum=0.9),
                          lambda: layers.Activation("relu"), lambda: layers.LayerNormalization()]),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models(name, strategy):
    shape, body = MODELS[name]

    def build():
        return keras.Sequential([layers.InputLayer(shape), *[layer() for layer in body], layers.Dense(4)])

    x = RNG.standard_normal((80, *shape)).astype(np.float32)
    stock, model = side_by_side(
        strategy,
        build,
        (x, LABELS),
        by_class(lambda: keras.optimizers.SGD(0.05)),
        epochs=5,
        validation_data=(x, LABELS),
    )
    np.testing.assert_allclose(
        model.predict(x, batch_size=8, verbose=0), stock.predict(x, verbose=0), rtol=1e-4, atol=1e-5
    )


def test_embedding_with_adam_and_two_outputs(strategy):
    def build():
        ids = layers.Input((5,), dtype="int32")
        x = layers.GlobalAveragePooling1D()(layers.Embedding(20, 6)(ids))
        return keras.Model(ids, [layers.Dense(4, name="kind")(x), layers.Dense(2, name="size")(x)])

    def compile_with():
        losses = {"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "size": "mse"}
        return {"optimizer": keras.optimizers.Adam(0.01, epsilon=1e-3), "loss": losses, "metrics": {"kind": "accuracy"}}

    ids = RNG.integers(0, 20, (80, 5)).astype(np.int32)
    side_by_side(strategy, build, (ids, {"kind": LABELS, "size": Y}), compile_with, epochs=2)


legacy, schedules = keras.optimizers.legacy, keras.optimizers.schedules
OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01, epsilon=1e-3),
    "adamw": lambda: keras.optimizers.AdamW(0.01, epsilon=1e-3, clipnorm=0.5, use_ema=True),
    "rmsprop": lambda: keras.optimizers.RMSprop(schedules.ExponentialDecay(0.01, 3, 0.9), epsilon=1e-3),
    "ftrl": lambda: keras.optimizers.Ftrl(0.05),
    "legacy_sgd": lambda: legacy.SGD(0.05, momentum=0.9, nesterov=True),
    "legacy_adam": lambda: legacy.Adam(schedules.CosineDecay(0.02, 20), epsilon=1e-3),
    "legacy_rmsprop": lambda: legacy.RMSprop(0.01, epsilon=1e-3, clipvalue=0.1),
    "legacy_nadam": lambda: legacy.Nadam(0.01, epsilon=1e-3),
    "legacy_adagrad": lambda: legacy.Adagrad(0.05, decay=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name, strategy):
    _, model = side_by_side(
        strategy, mlp, (X, Y), lambda: {"optimizer": OPTIMIZERS[name](), "loss": "mse", "metrics": ["mae"]}, epochs=2
    )
    assert int(model.optimizer.iterations) == 20


def test_nadam_trains_as_it_does_eagerly_however_often_it_is_traced(strategy):
    # In graphs, stock Keras 2 multiplies the momentum schedule once for every variable after the second, too.
    nadam = keras.optimizers.Nadam
    stock, model = twins(strategy, mlp, lambda: {"optimizer": nadam(0.01, epsilon=1e-3), "loss": "mse"})
    stock.run_eagerly = True
    for count, size in ((40, 8), (12, 4)):
        for one in (stock, model):
            one.fit(X[:count], Y[:count], batch_size=size, shuffle=False, verbose=0, epochs=2)
    agree(stock, model)
    np.testing.assert_allclose(model.optimizer._u_product, stock.optimizer._u_product, rtol=1e-5)


def test_class_weight_sample_weight_split_and_one_batch_at_a_time(strategy):
    def build():
        return keras.Sequential([layers.InputLayer((6,)), layers.Dense(4, kernel_regularizer="l2")])

    compile_with = by_class(lambda: keras.optimizers.SGD(0.05))
    stock, model = side_by_side(
        strategy, build, (X, LABELS), compile_with, class_weight={0: 2.0, 1: 0.5, 2: 1.0, 3: 1.0}, validation_split=0.5
    )
    for one in (stock, model):
        one.fit(X, LABELS, batch_size=8, shuffle=False, verbose=0, sample_weight=np.linspace(0, 1, 80))
    agree(stock, model)
    for start in (0, 8):
        rows = slice(start, start + 8)
        np.testing.assert_allclose(
            model.train_on_batch(X[rows], LABELS[rows]), stock.train_on_batch(X[rows], LABELS[rows]), rtol=1e-5
        )
    np.testing.assert_allclose(
        model.test_on_batch(X[:8], LABELS[:8]), stock.test_on_batch(X[:8], LABELS[:8]), rtol=1e-5
    )
    np.testing.assert_allclose(model.predict_on_batch(X[:8]), stock.predict_on_batch(X[:8]), rtol=1e-4, atol=1e-6)
    agree(stock, model)


def test_callbacks(strategy, tmp_path):
    with strategy.scope():
        model = mlp()
        model.compile(keras.optimizers.SGD(0.05), "mse", steps_per_execution=5)
    batches, counters = [], []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            batches.append(batch)

        def on_train_batch_end(self, batch, logs=None):
            batches.append(batch)
            counters.append(int(self.model._train_counter))

    history = model.fit(
        X, Y, batch_size=8, epochs=5, verbose=0, validation_data=(X, Y),
        callbacks=[
            Watch(),
            keras.callbacks.EarlyStopping("val_loss", mode="max", restore_best_weights=True),
            keras.callbacks.ModelCheckpoint(str(tmp_path / "w.h5"), save_weights_only=True),
            keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1)),
            keras.callbacks.CSVLogger(str(tmp_path / "log.csv")),
        ],
    )  # fmt: skip
    assert len(history.epoch) == 2
    assert batches == [0, 4, 5, 9] * 2 and counters == [5, 10, 15, 20]
    assert (tmp_path / "w.h5").exists() and "lr" in (tmp_path / "log.csv").read_text()


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file:UserWarning")
@pytest.mark.parametrize("name", ["model.keras", "model.h5", "saved_model"])
def test_save_and_load(name, strategy, tmp_path):
    with strategy.scope():
        model = mlp()
        model.compile("adam", "mse", steps_per_execution=5)
    model.fit(X, Y, batch_size=8, verbose=0)
    expected = model.predict(X, batch_size=8, verbose=0)
    model.save(tmp_path / name)
    outside = keras.models.load_model(tmp_path / name)
    np.testing.assert_allclose(outside.predict(X, verbose=0), expected, rtol=1e-4, atol=1e-5)
    with strategy.scope():
        inside = keras.models.load_model(tmp_path / name)
    assert hasattr(inside, "set_infeed_queue_options")
    np.testing.assert_allclose(inside.predict(X, batch_size=8, verbose=0), expected, rtol=1e-4, atol=1e-5)
    inside.fit(X, Y, batch_size=8, verbose=0)


def test_mixed_precision(strategy):
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        stock, model = twins(
            strategy, lambda: keras.Sequential([layers.InputLayer((6,)), layers.Dense(8, "relu"), layers.Dense(2)]),
            lambda: {"optimizer": keras.optimizers.SGD(0.01), "loss": "mse"},
        )  # fmt: skip
        logs = [m.fit(X, Y, batch_size=8, shuffle=False, verbose=0).history["loss"] for m in (stock, model)]
    finally:
        keras.mixed_precision.set_global_policy("float32")
    np.testing.assert_allclose(*logs, rtol=1e-2)
    assert type(model.optimizer).__name__.startswith("LossScaleOptimizer")


class OwnTrainStep(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        return {}


class OwnTestStep(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, x):
        return self.dense(x)

    def test_step(self, data):
        return {"largest": tf.reduce_max(tf.abs(self(data[0]) - data[1]))}


def test_own_steps(strategy):
    with strategy.scope():
        model = OwnTrainStep()
        model.compile("sgd", "mse")
        other = OwnTestStep()
        other.compile("sgd", "mse")
    with pytest.raises(RuntimeError, match=r"The function `train_step` for the model .* has been overridden"):
        model.fit(X, Y, batch_size=8)
    other.fit(X, Y, batch_size=8, verbose=0)
    logs = other.evaluate(X, Y, batch_size=8, verbose=0, return_dict=True)
    plain = X @ other.dense.kernel.numpy() + other.dense.bias.numpy()
    np.testing.assert_allclose(logs["largest"], np.abs(plain - Y)[-8:].max(), rtol=1e-5)


def test_refusals_and_datasets(strategy):
    stock, model = twins(strategy, mlp, lambda: {"optimizer": "sgd", "loss": "mse"})
    before = model.get_weights()
    examples = tf.data.Dataset.from_tensor_slices((X, Y))
    with pytest.raises(ValueError, match="partial batch"):
        model.fit(X, Y, batch_size=32)
    with pytest.raises(ValueError, match="not fully defined"):
        model.fit(examples.batch(8))
    with pytest.raises(ValueError, match="not compatible with the IPU's requirement"):
        model.fit((X, Y) for _ in range(3))
    np.testing.assert_array_equal(before[0], model.get_weights()[0])
    for one in (stock, model):
        one.fit(examples.batch(8, drop_remainder=True).repeat(), steps_per_epoch=5, epochs=3, verbose=0)
    agree(stock, model)


def test_training_loop_of_the_users_own(strategy):
    with strategy.scope():
        model = mlp()
        optimizer = keras.optimizers.Adam(0.05)

        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x) - y))
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))  # noqa: B905
            return loss

        losses = [float(strategy.run(step, (X[:8], Y[:8]))) for _ in range(10)]
    assert losses[-1] < losses[0]


def test_evaluate_without_metrics_returns_the_loss(strategy):
    stock, model = twins(strategy, mlp, lambda: {"loss": "mse"})
    received = model.evaluate(X, Y, batch_size=8, verbose=0)
    np.testing.assert_allclose(received, stock.evaluate(X, Y, batch_size=8, verbose=0), rtol=1e-5)
    assert np.ndim(received) == 0


class Layered(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, x):
        return self.dense(x)


def test_a_subclassed_model_that_is_not_built_has_no_weights(strategy):
    with strategy.scope():
        model = Layered()
    assert (model.weights, model.trainable_weights, model.variables) == ([], [], [])


class FirstUsedInScope(keras.Model):
    pass


def test_names_and_classes_of_models_are_those_of_stock_keras(strategy):
    def made():
        keras.backend.clear_session()
        with strategy.scope() if inside else tf.init_scope():
            x = keras.Input((6,))
            models = [keras.Model(x, layers.Dense(2)(x)), keras.Model(x, layers.Dense(2)(x)), Layered(), mlp()]
            own = FirstUsedInScope(x, layers.Dense(2)(x))
            by_name = FirstUsedInScope(inputs=x, outputs=layers.Dense(2)(x), name="mine")
        return [(m.name, type(m).__name__, m.get_config()["name"] if m is not models[2] else None)
                for m in (*models, own, by_name)]  # fmt: skip

    inside = True
    received = made()
    inside = False
    assert received == made()
    assert [name for name, *_ in received[:2]] == ["model", "model_1"]


def test_an_optimizer_of_tensorflow_1_trains_as_it_does_in_stock_keras(strategy):
    for optimizer in (lambda: tf.compat.v1.train.AdamOptimizer(0.01, epsilon=1e-3),
                      lambda: tf.compat.v1.train.MomentumOptimizer(0.05, 0.9)):  # fmt: skip
        side_by_side(strategy, mlp, (X, Y), lambda o=optimizer: {"optimizer": o(), "loss": "mse"}, epochs=2)


def test_lists_are_data(strategy):
    side_by_side(strategy, mlp, (X.tolist(), Y.tolist()), lambda: {"optimizer": "sgd", "loss": "mse"})


def test_steps_per_epoch_gives_arrays_their_batch_size(strategy):
    stock, model = twins(strategy, mlp, lambda: {"optimizer": "sgd", "loss": "mse"}, per_execution=2)
    logs = [m.fit(X, Y, steps_per_epoch=4, shuffle=False, verbose=0).history["loss"] for m in (stock, model)]
    np.testing.assert_allclose(logs[1], logs[0], rtol=1e-5)
    agree(stock, model)


def test_tensorboard_writes_what_it_writes_for_stock_keras(strategy, tmp_path):
    seen = []
    for number, model in enumerate(twins(strategy, mlp, lambda: {"optimizer": "sgd", "loss": "mse"})):
        folder = tmp_path / str(number)
        board = keras.callbacks.TensorBoard(folder, write_steps_per_second=True)
        model.fit(X, Y, batch_size=8, verbose=0, callbacks=[board])
        tags = set()
        for file in folder.rglob("events*"):
            for record in tf.data.TFRecordDataset(str(file)):
                event = tf.compat.v1.Event.FromString(record.numpy())
                tags |= {v.tag for v in event.summary.value} | ({"graph"} if event.HasField("graph_def") else set())
        seen.append(tags)
    assert seen[0] == seen[1] and "graph" in seen[1]


WRAPPERS = {
    "CrossReplicaOptimizer": ((), 1),
    "MapGradientOptimizer": ((lambda gradient, value: 2 * gradient,), 1),
    "GradientAccumulationOptimizer": ((5,), 5),
}


@pytest.mark.parametrize("inner", [lambda: keras.optimizers.SGD(0.05), lambda: legacy.SGD(0.05, momentum=0.9)],
                         ids=["current", "legacy"])  # fmt: skip
@pytest.mark.parametrize("name", WRAPPERS)
def test_optimizers_of_keras_ipu_wrap_those_of_keras_2(name, inner, strategy):
    arguments, calls = WRAPPERS[name]
    stock, model = twins(strategy, mlp, lambda: {"optimizer": inner(), "loss": "mse"})
    with strategy.scope():
        wrapped = getattr(keras.ipu.optimizers, name)(inner(), *arguments)
        model.compile(wrapped, "mse", steps_per_execution=5)
    model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    assert int(wrapped.iterations) == 10 // calls
    if name == "CrossReplicaOptimizer":
        stock.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
        agree(stock, model)


def test_layers_of_keras_ipu_wrap_those_of_keras_2(strategy):
    def gradients():
        dense, out = layers.Dense(4, "tanh", kernel_initializer="ones"), layers.Dense(2, kernel_initializer="ones")
        model = keras.Sequential([
            layers.InputLayer((6,)), keras.ipu.layers.CaptureActivationGradients(dense, "a"),
            keras.ipu.layers.CaptureUpstreamGradients(out, "b"), layers.Dropout(0.5),
        ])  # fmt: skip
        from tensorflow.python.ipu.eager import backprop

        with backprop.GradientCaptureTape() as tape:
            loss = tf.reduce_sum(model(X[:8]) ** 2)
        tape.gradient(loss, model.trainable_variables)
        return {name: value[0].numpy() for name, value in tape.captured_gradients.items()}

    h = np.tanh(X[:8] @ np.ones((6, 4)))
    upstream = 2 * (h @ np.ones((4, 2)))
    seen = gradients()
    np.testing.assert_allclose(seen["b"], upstream, rtol=1e-4)
    np.testing.assert_allclose(seen["a_activation"], upstream @ np.ones((2, 4)) * (1 - h**2), rtol=1e-3, atol=1e-4)


class Staged(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.last = layers.Dense(4), layers.Dense(2)

    def call(self, x):
        with keras.ipu.PipelineStage(0):
            x = self.first(x)
        with keras.ipu.PipelineStage(1):
            return self.last(x)

    def get_config(self):
        return {}


@pytest.mark.parametrize("kind", ["subclassed", "sequential"])
def test_a_model_built_for_one_example_trains_on_batches_in_its_stages(kind):
    from tensorflow.python import ipu

    def build():
        if kind == "subclassed":
            return Staged()
        return keras.Sequential([layers.Dense(4), layers.Dense(2)])

    x, y = RNG.standard_normal((64, 5, 6)).astype(np.float32), RNG.standard_normal((64, 5, 2)).astype(np.float32)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    try:
        with ipu.ipu_strategy.IPUStrategy().scope():
            model = build()
            model.build((5, 6))
            if kind == "sequential":
                model.set_pipeline_stage_assignment([0, 1])
            model.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=8)
            model.set_pipelining_options(8, gradient_accumulation_reduction_method="mean")
            weights = [w.copy() for w in model.get_weights()]
            model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
            assert [a.pipeline_stage for a in model.get_pipeline_stage_assignment()] == [0, 1]
    finally:
        ipu.config.reset_ipu_configuration()
    stock = keras.Sequential([layers.Dense(4), layers.Dense(2)])
    stock.build((None, 5, 6))
    stock.set_weights(weights)
    stock.compile(keras.optimizers.SGD(0.1), "mse")
    stock.fit(x, y, batch_size=64, shuffle=False, verbose=0)
    agree(stock, model)


@pytest.mark.parametrize("name", ["model.keras", "saved_model"])
def test_a_subclassed_model_with_stages_is_saved_with_them(name, tmp_path):
    from tensorflow.python import ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    try:
        with ipu.ipu_strategy.IPUStrategy().scope():
            model = Staged()
            model.compile("sgd", "mse", steps_per_execution=8)
            model.set_pipelining_options(8)
            model.fit(X, Y, batch_size=10, verbose=0)
            model.save(tmp_path / name)
            loaded = keras.models.load_model(tmp_path / name, custom_objects={"Staged": Staged})
            assert [a.pipeline_stage for a in loaded.get_pipeline_stage_assignment()] == [0, 1]
            for one, other in zip(model.get_weights(), loaded.get_weights(), strict=True):
                np.testing.assert_array_equal(one, other)
    finally:
        ipu.config.reset_ipu_configuration()
