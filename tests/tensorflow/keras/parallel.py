"""What many IPUs should do, written with stock Keras one micro-batch at a time."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

BATCH = 4


def data(elements: int, width: int = 6, classes: int = 3, seed: int = 0):
    """Batches of a small regression."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((elements * BATCH, width)).astype("float32")
    return x, generator.standard_normal((elements * BATCH, classes)).astype("float32")


def build(batch_norm: bool = False):
    """Four layers that are trained, enough for four stages."""
    keras.utils.set_random_seed(3)
    layers = [keras.Input((6,))]
    if batch_norm:
        layers.append(keras.layers.BatchNormalization(momentum=0.9))
    layers += [keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(8, activation="tanh")]
    if batch_norm:
        layers.append(keras.layers.BatchNormalization(momentum=0.9))
    return keras.Sequential([*layers, keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)])


def optimizer():
    return keras.optimizers.Adam(0.01)


@contextlib.contextmanager
def ipus(count: int, **settings):
    """The scope of a strategy on so many virtual IPUs."""
    from tensorflow.python import ipu

    ipu.config.reset_ipu_configuration()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = count
    for name, value in settings.items():
        setattr(config, name, value)
    config.configure_ipu_system()
    try:
        with ipu.ipu_strategy.IPUStrategy().scope():
            yield
    finally:
        ipu.config.reset_ipu_configuration()


def train_reference(model, x, y, replicas: int = 1, accumulation: int = 1, mean: bool = False):
    """Train a stock model as `replicas` IPUs would; statistics are those of the first replica.

    Returns the losses, one for each micro-batch.
    """
    update = optimizer()
    losses = []
    loss_of = keras.losses.MeanSquaredError()
    elements = [(x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, len(x), BATCH)]
    for start in range(0, len(elements), replicas * accumulation):
        total = [tf.zeros(v.shape) for v in model.trainable_variables]
        for number in range(start, start + replicas * accumulation):
            statistics = [v.numpy() for v in model.non_trainable_variables]
            with tf.GradientTape() as tape:
                loss = loss_of(elements[number][1], model(elements[number][0], training=True))
            gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
            total = [t + g / (accumulation if mean else 1) for t, g in zip(total, gradients, strict=True)]
            losses.append(float(loss))
            if number % replicas:
                for variable, value in zip(model.non_trainable_variables, statistics, strict=True):
                    variable.assign(value)
        update.apply_gradients(zip(total, model.trainable_variables, strict=True))
    return losses


def assert_same_weights(expected, received, tolerance: float = 1e-5):
    for one, other in zip(expected.get_weights(), received.get_weights(), strict=True):
        np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance * max(np.abs(one).max(), 0.1))
