"""The addons beside stock Keras and NumPy, with whichever Keras is chosen: `test_keras2` runs them with Keras 2."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from ipu_tensorflow_addons.keras import layers, optimizers
from openipu.tensorflow.addons.keras import IS_KERAS_2, keras

BATCH, STEPS = 8, 20


def noise(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def strategy():
    ipu.config.reset_ipu_configuration()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    yield ipu.ipu_strategy.IPUStrategy()
    ipu.config.reset_ipu_configuration()


def on_ipu(strategy, function, *args):
    """What a function gives in a program for the IPU."""
    with strategy.scope():
        return strategy.run(tf.function(function, autograph=False), args=args)


def close(received, expected, tolerance=1e-5):
    for r, e in zip(tf.nest.flatten(received), tf.nest.flatten(expected), strict=True):
        r, e = np.asarray(r, np.float64), np.asarray(e, np.float64)
        assert r.shape == e.shape
        assert np.abs(r - e).max(initial=0) <= tolerance * max(np.abs(e).max(initial=0), 1e-6)


def sgd():
    return keras.optimizers.SGD(0.05)


def train(model, x, y, optimizer, per_execution=1):
    model.compile(optimizer, loss="mse", steps_per_execution=per_execution)
    history = model.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
    return [history.history["loss"], *model.get_weights()]


def check_training(strategy, ours, stock, shape, units, optimizer=sgd, stock_optimizer=None, tolerance=1e-5):
    """Twenty steps of a model with our layer on the IPU, beside stock Keras, from the same weights."""
    x, y = noise(STEPS * BATCH, *shape), noise(STEPS * BATCH, units, seed=1)

    def build(layer):
        return keras.Sequential([keras.Input(shape), layer(), keras.layers.Flatten(), keras.layers.Dense(units)])

    plain = build(stock)
    weights = plain.get_weights()
    with strategy.scope():
        model = build(ours)
        model.set_weights(weights)
        received = train(model, x, y, optimizer(), 10)
    close(received[1:], train(plain, x, y, (stock_optimizer or optimizer)())[1:], tolerance)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_twenty_steps_are_those_of_stock_keras(kind, strategy):
    settings = {"return_sequences": True}
    if kind == "LSTM":
        settings |= {"activation": "sigmoid", "recurrent_activation": "hard_sigmoid"}
    ours, stock = getattr(layers, kind), getattr(keras.layers, kind)
    check_training(strategy, lambda: ours(5, **settings), lambda: stock(5, **settings), (4, 3), 2)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_states_go_in_and_come_out_as_in_stock_keras(kind, strategy):
    x, states = noise(2, 4, 3), [noise(2, 5, seed=s) for s in (range(2) if kind == "LSTM" else range(1))]
    settings = {"return_sequences": True, "return_state": True}
    if kind == "GRU":
        settings["reset_after"] = False
    stock = getattr(keras.layers, kind)(5, **settings)
    ours = getattr(layers, kind)(5, **settings)
    state = [tf.constant(s) for s in states]
    expected = stock(x, initial_state=state)
    with strategy.scope():
        ours.build((2, 4, 3))
        ours.set_weights(stock.get_weights())
    close(ours(x, initial_state=state), expected)
    close(on_ipu(strategy, lambda x, *s: ours(x, initial_state=list(s)), tf.constant(x), *state), expected)
    by_time = getattr(layers, kind)(5, **settings, time_major=True)
    by_time.build((4, 2, 3))
    by_time.set_weights(stock.get_weights())
    sequence, *last = by_time(x.swapaxes(0, 1), initial_state=state)
    close([tf.transpose(sequence, [1, 0, 2]), *last], expected)


def test_gradients_are_those_of_stock_keras(strategy):
    x = noise(2, 4, 3)
    stock, ours = keras.layers.LSTM(5), layers.LSTM(5)
    stock(x)
    with strategy.scope():
        ours.build((2, 4, 3))
        ours.set_weights(stock.get_weights())

    def gradients(layer):
        def of(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(tf.sin(layer(x)))
            return tape.gradient(loss, [x, *(v if IS_KERAS_2 else v.value for v in layer.trainable_weights)])

        return of

    expected = gradients(stock)(tf.constant(x))
    close(on_ipu(strategy, gradients(ours), tf.constant(x)), expected)
    close(gradients(ours)(tf.constant(x)), expected)


def test_a_stateful_layer_goes_on_where_the_last_batch_ended(strategy, tmp_path):
    x = noise(6, 4, 3)

    def build(layer):
        inputs = keras.Input(batch_shape=(2, 4, 3))
        return keras.Model(inputs, layer(5, stateful=True)(inputs))

    stock = build(keras.layers.LSTM)
    with strategy.scope():
        model = build(layers.LSTM)
        # States are no weights.
        model.set_weights(stock.get_weights())
        model.compile(steps_per_execution=3)
        received = model.predict(x, batch_size=2, verbose=0)
    expected = stock.predict(x, batch_size=2, verbose=0)
    close(received, expected)
    assert np.abs(expected[:2] - expected[2:4]).max() > 1e-3
    model.layers[1].reset_states()
    close(model.predict(x, batch_size=2, verbose=0), received)
    # As TensorFlow saves it.
    tf.saved_model.save(model, str(tmp_path))
    assert tf.saved_model.load(str(tmp_path)).signatures


def test_recurrent_layers_say_what_they_will_give():
    for kind, states in (("LSTM", 2), ("GRU", 1)):
        layer = getattr(layers, kind)(5, return_sequences=True, return_state=True)
        expected = [(2, 4, 5), *[(2, 5)] * states]
        assert list(layer.compute_output_shape((2, 4, 3))) == expected
        assert [tuple(t.shape) for t in layer(keras.Input((4, 3), batch_size=2))] == expected
        assert tuple(getattr(layers, kind)(5, time_major=True).compute_output_shape((4, 2, 3))) == (2, 5)


def test_the_state_to_begin_with_may_come_with_the_sequence():
    x, state = noise(2, 4, 3), [noise(2, 5, seed=1), noise(2, 5, seed=2)]
    layer = layers.LSTM(5)
    close(layer([tf.constant(v) for v in (x, *state)]), layer(x, initial_state=[tf.constant(s) for s in state]))


def test_dropout_of_the_same_seed_repeats_and_of_another_differs(strategy):
    x = tf.ones([64, 6, 4])

    def dropped(seed):
        layer = layers.Dropout(0.5, seed=seed)
        return np.asarray(on_ipu(strategy, lambda x: layer(x, training=True), x))

    first = dropped([1, 2])
    assert (first == dropped([1, 2])).all() and (first != dropped([1, 3])).any()
    assert set(np.unique(first)) == {0.0, 2.0}
    assert abs((first == 0).mean() - 0.5) < 0.05
    layer = layers.Dropout(0.5)
    assert (np.asarray(layer(x, training=False)) == 1).all()

    def recurrent(seed):
        ones = {"kernel_initializer": "ones", "recurrent_initializer": "ones"}
        layer = layers.LSTM(3, dropout=0.5, dropout_seed=seed, return_sequences=True, **ones)
        return np.asarray(layer(x, training=True))

    assert (recurrent([1, 2]) == recurrent([1, 2])).all() and (recurrent([1, 2]) != recurrent([3, 4])).any()


def test_embedding_is_that_of_stock_keras(strategy):
    x = np.random.default_rng(0).integers(0, 12, (STEPS * BATCH, 4)).astype(np.int32)
    y = noise(STEPS * BATCH, 2)

    def build(layer):
        return keras.Sequential(
            [keras.Input((4,), dtype="int32"), layer(12, 3), keras.layers.Flatten(), keras.layers.Dense(2)]
        )

    stock = build(keras.layers.Embedding)
    with strategy.scope():
        model = build(layers.Embedding)
        model.set_weights(stock.get_weights())
        received = train(model, x, y, sgd(), 10)
    close(received[1:], train(stock, x, y, sgd())[1:])


def test_layer_normalisation_is_that_of_stock_keras(strategy):
    check_training(strategy, lambda: layers.LayerNormalization(axis=[1, 2]),
                   lambda: keras.layers.LayerNormalization(axis=[1, 2]), (4, 3), 2)  # fmt: skip


def test_group_and_instance_normalisation_follow_their_definition(strategy):
    x = noise(3, 5, 6)
    for strided in (True, False):
        layer = layers.GroupNormalization(2, gamma_initializer="ones", beta_initializer="zeros",
                                          strided_channel_grouping=strided)  # fmt: skip
        grouped = x.reshape(3, 5, 3, 2) if strided else x.reshape(3, 5, 2, 3).swapaxes(2, 3)
        mean, variance = grouped.mean((1, 2), keepdims=True), grouped.var((1, 2), keepdims=True)
        expected = (grouped - mean) / np.sqrt(variance + 1e-3)
        expected = expected.reshape(x.shape) if strided else expected.swapaxes(2, 3).reshape(x.shape)
        close(layer(x), expected)
        if strided:
            close(on_ipu(strategy, layer, tf.constant(x)), expected)
    instance = layers.InstanceNormalization(gamma_initializer="ones", beta_initializer="zeros")
    close(instance(x), (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-3))
    assert np.abs(np.asarray(layers.GroupNorm(2)(x)) - np.asarray(layer(x))).max() > 1e-3  # not ones and zeros


def test_serial_dense_is_dense(strategy):
    for dimension in ("input_columns", "input_rows_kernel_columns", "kernel_rows"):
        layer = layers.SerialDense(4, 2, dimension, activation="tanh")
        x = noise(2, 6)
        close(layer(x), np.tanh(x @ np.asarray(layer.kernel)))
    check_training(strategy, lambda: layers.SerialDense(4, 2, "kernel_rows"), lambda: keras.layers.Dense(4), (6,), 2)


def test_layers_that_pass_on_pass_on(strategy):
    x = tf.constant(noise(2, 3))
    for layer in (layers.AssumeEqualAcrossReplicas(), layers.RecomputationCheckpoint()):
        close(layer(x), x)
        close(on_ipu(strategy, layer, x), x)


def test_float8_there_and_back(strategy):
    metadata = ipu.ops.f8_ops.create_metadata(ipu.ops.f8_ops.Format.F143, 0)
    x = tf.constant([[0.5, -1.0, 2.0, 240.0]], tf.float16)

    def there_and_back(x):
        packed = layers.ConvertToF8()(x, tf.constant(metadata, tf.uint8))
        return layers.ConvertFromF8()(packed)

    close(there_and_back(x), x)
    close(on_ipu(strategy, there_and_back, x), x)
    dense = layers.Dense(3, bias_initializer="ones")
    packed = layers.ConvertToF8()(x, tf.constant(metadata, tf.uint8))
    result = dense(list(packed))
    assert result.dtype == tf.float16 and result.shape == (1, 3)
    weights = ipu.ops.f8_ops.convert_from_f8([tf.convert_to_tensor(dense.kernel_data), metadata_of(dense)], tf.float32)
    close(result, tf.cast(tf.cast(x, tf.float32) @ weights + 1, tf.float16), 2e-3)
    plain = layers.Dense(3)
    close(plain(noise(2, 4)), noise(2, 4) @ np.asarray(plain.kernel))
    for layer in (layers.ConvertFromF8(), layers.ConvertFromF8(tf.float32)):
        assert type(layer).from_config(layer.get_config()).compute_dtype == layer.compute_dtype


def metadata_of(dense):
    return tf.convert_to_tensor(dense.kernel_metadata)


def test_ctc_loss_is_that_of_tensorflow(strategy):
    logits, labels = noise(6, 2, 5), np.array([[1, 2, 1], [3, 4, 0]], np.int32)
    label_length, data_length = np.array([3, 2], np.int32), np.array([6, 5], np.int32)
    loss = tf.nn.ctc_loss(labels, logits, label_length, data_length, blank_index=0)
    expected = tf.reshape(tf.reduce_mean(loss), [1])
    layer = layers.CTCLoss(from_logits=True)
    close(layer(labels, logits, label_length, data_length), expected)
    given = [tf.constant(v) for v in (labels, logits, label_length, data_length)]
    close(on_ipu(strategy, lambda *a: layer(*a), *given), expected)
    log_probs = tf.nn.log_softmax(logits)
    close(layers.CTCLoss()(labels, log_probs, label_length, data_length), expected)


def test_ctc_predictions_are_those_of_tensorflow(strategy):
    logits, length = noise(6, 2, 5) * 3, np.array([6, 4], np.int32)
    # TensorFlow's blank is the last class.
    decoded, _ = tf.nn.ctc_beam_search_decoder(logits, length, beam_width=50, top_paths=1)
    expected = tf.sparse.to_dense(decoded[0], default_value=4).numpy()
    layer = layers.CTCPredictionsLayer(blank_index=4, beam_width=50, top_paths=2, from_logits=True)
    received = np.asarray(on_ipu(strategy, lambda *a: layer(*a), tf.constant(logits), tf.constant(length)))
    assert received.shape == (2, 6)
    assert (received[:, : expected.shape[1]] == expected).all() and (received[:, expected.shape[1] :] == 4).all()
    assert (np.asarray(layer(logits, length)) == received).all()
    scores, lengths, labels = layers.CTCInferenceLayer(4, 50, 2, True)(logits, length)
    assert scores.shape == (2, 2) and lengths.shape == (2, 2) and labels.shape == (2, 2, 6)
    assert (np.asarray(scores)[:, 0] <= np.asarray(scores)[:, 1]).all()


def test_the_effective_transformer_is_attention_without_padding(strategy):
    layer = layers.EffectiveTransformer(6, 4, use_scale=True, num_attention_heads=2, attention_head_size=3,
                                        layer_norm_output=False)  # fmt: skip
    x, lengths = noise(3, 5, 4), np.array([5, 2, 3], np.int32)
    inputs = [tf.constant(v) for v in (x, lengths, x, lengths)]
    output, context = layer(inputs, training=False)
    close(on_ipu(strategy, lambda *a: layer(list(a), training=False), *inputs), (output, context))
    weights = dict(zip(("query", "key", "value", "output"), layer.get_weights()[::2], strict=True))
    assert not np.allclose(weights["query"], weights["key"])
    for row, length in enumerate(lengths):
        q, k, v = (
            (x[row, :length] @ weights[name]).reshape(length, 2, 3).swapaxes(0, 1) for name in ("query", "key", "value")
        )
        scores = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(3))
        attended = (scores / scores.sum(-1, keepdims=True)) @ v
        expected = attended.swapaxes(0, 1).reshape(length, 6)
        close(context[row, :length], expected)
        close(output[row, :length], expected @ weights["output"])
        assert np.abs(output[row, length:]).max(initial=0) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.LSTM(3, dropout=0.1, dropout_seed=[1, 2], seed=4, partials_dtype=tf.float16),
        lambda: layers.GRU(3, reset_after=False, return_sequences=True),
        lambda: layers.GroupNormalization(3),
        lambda: layers.LayerNormalization(axis=[1, 2]),
        lambda: layers.InstanceNormalization(),
        lambda: layers.SerialDense(4, 2, "kernel_rows", activation="relu", kernel_regularizer="l2"),
        lambda: layers.Dropout(0.5, seed=[1, 2]),
        lambda: layers.AssumeEqualAcrossReplicas(True),
        lambda: layers.RecomputationCheckpoint(),
        lambda: layers.Dense(3, kernel_scale=2),
    ],
)
def test_saved_layers_come_back(make, tmp_path):
    x = noise(2, 4, 3)
    model = keras.Sequential([keras.Input((4, 3)), make()])
    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.models.load_model(path)
    assert again.layers[-1].get_config() == model.layers[-1].get_config()
    close(again(x), model(x))


@pytest.mark.parametrize(
    "arguments",
    [{"use_bias": False}, {"kernel_regularizer": "l2"}, {"bias_constraint": "non_neg"}, {"recurrent_dropout": 0.1},
     {"go_backwards": True}, {"unroll": True}, {"implementation": 3}],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_refuse_what_the_ipu_does_not_have(kind, arguments):
    with pytest.raises(ValueError, match=f"IPU custom {kind} layer does not support"):
        getattr(layers, kind)(4, **arguments)


def test_bad_arguments_are_refused():
    with pytest.raises(NotImplementedError, match="does not support __init__ argument mask_zero"):
        layers.Embedding(4, 2, mask_zero=True)
    with pytest.raises(ValueError, match=r"\[batch, input_length\]"):
        layers.Embedding(4, 2)(np.zeros((2, 3, 1), np.int32))
    with pytest.raises(NotImplementedError, match="gamma_constraint"):
        layers.LayerNorm(gamma_constraint="non_neg")
    with pytest.raises(ValueError, match="recurrent_activation must be one of"):
        layers.LSTM(4, recurrent_activation="relu")
    with pytest.raises(NotImplementedError, match="mask"):
        layers.LSTM(4)(noise(2, 3, 4), mask=np.ones((2, 3), bool))
    with pytest.raises(ValueError, match="commensurate"):
        layers.GroupNorm(4)(noise(2, 3, 6))
    with pytest.raises(ValueError, match="serialization_dimension"):
        layers.SerialDense(4, 2, "columns")
    with pytest.raises(ValueError, match="sequences_per_iter"):
        layers.EffectiveTransformer(4, 1, sequences_per_iter=2)
    with pytest.raises(ValueError, match="range"):
        layers.Dropout(1.5)


def adam_by_hand(weights, gradients, amsgrad=False, debiasing=True):
    m = v = top = 0.0
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        first, second = (m / (1 - 0.9**t), v / (1 - 0.999**t)) if debiasing else (m, v)
        top = np.maximum(top, second)
        weights = weights - 0.01 * first / (np.sqrt(top if amsgrad else second) + 1e-7)
    return weights


def applied(optimizer, weights, gradients, dtype="float32"):
    variable = (
        tf.Variable(weights.astype(dtype), name="dense/kernel")
        if IS_KERAS_2
        else keras.Variable(weights.astype(dtype), name="kernel", dtype=dtype)
    )
    for g in gradients:
        optimizer.apply_gradients([(tf.constant(g.astype(dtype)), variable)])
    return np.asarray(tf.convert_to_tensor(variable)), variable


WEIGHTS, GRADIENTS = noise(3, 4).astype(np.float64), noise(5, 3, 4, seed=2).astype(np.float64)


@pytest.mark.parametrize("settings", [{}, {"amsgrad": True}, {"debiasing": False}])
def test_adam_is_that_of_the_paper(settings):
    received, _ = applied(optimizers.AdamIpuOptimizer(0.01, **settings), WEIGHTS, GRADIENTS)
    close(received, adam_by_hand(WEIGHTS, GRADIENTS, **settings))


def test_lamb_follows_its_definition():
    def by_hand(weights, decay, clip, adapts):
        m = v = 0.0
        for t, g in enumerate(GRADIENTS, 1):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            u = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6) + decay * weights
            ratio = min(np.linalg.norm(weights), clip) / np.linalg.norm(u) if adapts else 1
            weights = weights - 0.01 * ratio * u
        return weights

    lamb = optimizers.LAMBIpuOptimizer
    close(applied(lamb(0.01, weight_decay_rate=0.1), WEIGHTS, GRADIENTS)[0], by_hand(WEIGHTS, 0.1, np.inf, True))
    clipped = lamb(0.01, weight_norm_clip=0.5)
    close(applied(clipped, WEIGHTS, GRADIENTS)[0], by_hand(WEIGHTS, 0.0, 0.5, True))
    left_out = lamb(0.01, weight_decay_rate=0.1, exclude_from_weight_decay=["kern.l"])
    close(applied(left_out, WEIGHTS, GRADIENTS)[0], by_hand(WEIGHTS, 0.0, np.inf, False))
    with pytest.raises(ValueError, match="2 entries"):
        lamb(optimizer_compute_precisions=(tf.float32,))


def test_state_has_the_types_that_were_asked_for():
    optimizer = optimizers.AdamIpuOptimizer(0.01, m_dtype=tf.float16, v_dtype=tf.float32)
    received, variable = applied(optimizer, WEIGHTS, GRADIENTS, "float16")
    assert received.dtype == np.float16
    assert tf.as_dtype(optimizer.get_slot(variable, "m").dtype) == tf.float16
    assert tf.as_dtype(optimizer.get_slot(variable, "v").dtype) == tf.float32
    close(received, adam_by_hand(WEIGHTS, GRADIENTS), 5e-3)
    momentum = optimizers.SGDIpuOptimizer(0.01, 0.9, momentum_accum_dtype=tf.float32)
    _, variable = applied(momentum, WEIGHTS, GRADIENTS, "float16")
    assert tf.as_dtype(momentum.get_slot(variable, "momentum").dtype) == tf.float32


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
def test_gradient_descent_trains_like_stock_keras(settings, strategy):
    check_training(
        strategy, lambda: keras.layers.Dense(4, "tanh"), lambda: keras.layers.Dense(4, "tanh"), (3,), 2,
        lambda: optimizers.SGDIpuOptimizer(0.05, **settings), lambda: keras.optimizers.SGD(0.05, **settings),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["AdamIpuOptimizer", "LAMBIpuOptimizer"])
def test_optimizers_train_on_the_ipu_as_on_the_host(name, strategy):
    make = lambda: getattr(optimizers, name)(0.01, epsilon=1e-3)  # noqa: E731
    dense = lambda: keras.layers.Dense(4, "tanh")  # noqa: E731
    check_training(strategy, dense, dense, (3,), 2, make)


@pytest.mark.parametrize("kind", ["SGDIpuOptimizer", "AdamIpuOptimizer"])
def test_a_scaled_loss_changes_nothing(kind, strategy):
    def make():
        return getattr(optimizers, kind)(0.01, **({} if kind.startswith("SGD") else {"epsilon": 1e-3}))

    def scaled():
        if IS_KERAS_2:
            return keras.mixed_precision.LossScaleOptimizer(make(), dynamic=False, initial_scale=64)
        return keras.optimizers.LossScaleOptimizer(make(), initial_scale=64.0)

    dense = lambda: keras.layers.Dense(4, "tanh")  # noqa: E731
    check_training(strategy, dense, dense, (3,), 2, scaled, make)


def test_checkpoints_have_the_state_of_optimizers(tmp_path):
    def state(model):
        variables = model.optimizer.variables() if IS_KERAS_2 else model.optimizer.variables
        return [np.asarray(tf.convert_to_tensor(v)) for v in variables]

    def build():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile(optimizers.AdamIpuOptimizer(0.01), "mse")
        model.fit(noise(8, 3), noise(8, 2, seed=1), batch_size=4, verbose=0)
        return model

    saved, other = build(), build()
    path = tf.train.Checkpoint(model=saved, optimizer=saved.optimizer).save(tmp_path / "checkpoint")
    assert any((a != b).any() for a, b in zip(state(other), state(saved), strict=True))
    tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
    close(state(other), state(saved), 0)


def test_optimizers_are_made_again_from_their_configuration():
    for optimizer in (
        optimizers.AdamIpuOptimizer(0.1, m_dtype=tf.float16, amsgrad=True),
        optimizers.LAMBIpuOptimizer(0.1, exclude_from_weight_decay=["bias"]),
        optimizers.SGDIpuOptimizer(0.1, 0.9, nesterov=True),
    ):
        again = type(optimizer).from_config(optimizer.get_config())
        assert again.get_config() == optimizer.get_config()


def test_sparse_gradients_are_refused():
    variable = tf.Variable(noise(4, 2)) if IS_KERAS_2 else keras.Variable(noise(4, 2))
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]), tf.constant([4, 2]))
    with pytest.raises(NotImplementedError, match="sparse"):
        optimizers.AdamIpuOptimizer().apply_gradients([(slices, variable)])
