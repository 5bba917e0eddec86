"""Automatic loss scaling around optimizers of TensorFlow 1, in graphs and functions."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

v1 = tf.compat.v1
X, Y = np.linspace(-1, 1, 8, dtype=np.float32)[:, None], np.linspace(-2, 2, 8, dtype=np.float32)[:, None]


def descent(steps, rate):
    """Gradient descent on one weight, by hand."""
    w = 0.5
    for _ in range(steps):
        w -= rate * float(np.mean(2 * (w * X - Y) * X))
    return w


@pytest.fixture
def compared_by_identity():
    """Python compares tensors as programs of TensorFlow 1 do."""
    v1.disable_tensor_equality()
    yield
    v1.enable_tensor_equality()


def test_a_graph_trains_as_without_it_while_the_factor_grows(strategy, compared_by_identity):
    with tf.Graph().as_default(), v1.Session() as session:

        def step(x, y):
            weight = v1.get_variable("w", initializer=0.5)
            loss = tf.reduce_mean(tf.square(weight * x - y))
            optimizer = ipu.optimizers.AutomaticLossScalingOptimizer(
                v1.train.GradientDescentOptimizer(0.1), update_frequency=2
            )
            with tf.control_dependencies([optimizer.minimize(loss)]):
                return tf.identity(loss)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            loss = ipu.ipu_compiler.compile(step, [tf.constant(X), tf.constant(Y)])
        session.run(v1.global_variables_initializer())
        losses = [float(np.squeeze(session.run(loss))) for _ in range(5)]
        values = {v.name.split(":")[0]: session.run(v) for v in v1.global_variables()}
    np.testing.assert_allclose(values["w"], descent(5, 0.1), rtol=1e-5)
    assert losses == sorted(losses, reverse=True)
    (factor,) = [
        value for name, value in values.items() if name.endswith("/loss_scaling_factor") and "prev" not in name
    ]
    assert factor == 2  # the third call is the first with a counter of two


def test_functions_train_as_without_it(strategy):
    with strategy.scope():
        weight = tf.Variable(0.5)
        optimizer = ipu.optimizers.AutomaticLossScalingOptimizer(
            v1.train.GradientDescentOptimizer(0.1), update_frequency=2
        )

        @tf.function
        def step(x, y):
            optimizer.minimize(lambda: tf.reduce_mean(tf.square(weight * x - y)), var_list=[weight])

        for _ in range(5):
            strategy.run(step, (X, Y))
    np.testing.assert_allclose(weight, descent(5, 0.1), rtol=1e-5)
    assert float(optimizer.loss_scaling_factor) == 2 and int(optimizer.update_counter) == 2


def test_float16_gradients_are_counted():
    optimizer = ipu.optimizers.AutomaticLossScalingOptimizer(
        v1.train.GradientDescentOptimizer(0.0), initial_loss_scaling_factor=8, update_frequency=2
    )
    weight = tf.Variable(tf.zeros(4, tf.float16))
    optimizer.apply_gradients([(tf.constant([1, 2, 10000, -20000], tf.float16), weight)])
    np.testing.assert_array_equal(optimizer.histogram, [2, 2])
    np.testing.assert_array_equal(optimizer.normalized_histogram, [0.5, 0.5])
    for _ in range(2):
        optimizer.apply_gradients([(tf.zeros(4, tf.float16), weight)])
    assert float(optimizer.loss_scaling_factor) == 4
    optimizer.reset()
    assert float(optimizer.loss_scaling_factor) == 8


def test_it_wraps_optimizers_of_tensorflow_1_only():
    with pytest.raises(ValueError, match=r"keras\.ipu\.optimizers"):
        ipu.optimizers.AutomaticLossScalingOptimizer(tf.keras.optimizers.SGD())
