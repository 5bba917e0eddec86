"""Wrapping Keras optimizers, against plain ones given the same gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.ipu import optimizers

from openipu.errors import UnsupportedError


def steps(optimizer, gradients):
    """The variable after each step."""
    variable = keras.Variable(1.0)
    optimizer.build([variable])
    values = []
    for gradient in gradients:
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
        values.append(float(variable))
    return values


@pytest.mark.parametrize(("method", "scale"), [("sum", 1), ("mean", 2), ("running_mean", 2)])
def test_accumulated_gradients_make_one_update(method, scale):
    wrapped = optimizers.GradientAccumulationOptimizer(keras.optimizers.Adam(0.1), 2, reduction_method=method)
    received = steps(wrapped, [1.0, 3.0, -2.0, 4.0])
    plain = steps(keras.optimizers.Adam(0.1), [4.0 / scale, 2.0 / scale])
    np.testing.assert_allclose(received, [1.0, plain[0], plain[0], plain[1]], rtol=1e-6)
    assert int(wrapped.iterations) == 2


def test_nothing_to_accumulate_gives_the_optimizer_itself():
    inner = keras.optimizers.SGD()
    assert optimizers.GradientAccumulationOptimizer(inner, 1) is inner
    with pytest.raises(ValueError, match="num_mini_batches must be >= 1"):
        optimizers.GradientAccumulationOptimizer(inner, 0)


def test_gradients_are_mapped_with_the_value_of_the_variable():
    wrapped = optimizers.MapGradientOptimizer(keras.optimizers.SGD(0.5), lambda grad, value: 2 * grad + value)
    assert steps(wrapped, [3.0]) == [1.0 - 0.5 * 7.0]


def test_settings_and_configuration_are_those_of_the_optimizer_inside():
    wrapped = optimizers.GradientAccumulationOptimizer(keras.optimizers.SGD(0.5), 4, reduction_method="mean")
    wrapped.learning_rate = 0.25
    assert float(wrapped.inner_optimizer.learning_rate) == float(wrapped.learning_rate) == 0.25
    again = optimizers.GradientAccumulationOptimizer.from_config(wrapped.get_config())
    assert isinstance(again.inner_optimizer, keras.optimizers.SGD)
    assert again.get_config() == wrapped.get_config()
    with pytest.raises(ValueError, match="opt must be a Keras optimizer"):
        optimizers.CrossReplicaOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))


def test_models_train_with_wrapped_optimizers(strategy):
    x, y = np.linspace(-1, 1, 16, dtype="float32")[:, None], np.linspace(-2, 2, 16, dtype="float32")[:, None]

    def fit(optimizer):
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(optimizer, "mse", steps_per_execution=4)
        model.fit(x, y, batch_size=4, epochs=1, verbose=0, shuffle=False)
        return float(model.weights[0].numpy()[0, 0])

    with strategy.scope():
        wrapped = optimizers.CrossReplicaOptimizer(keras.optimizers.SGD(0.05))
        wrapped = optimizers.MapGradientOptimizer(wrapped, lambda grad, value: 2 * grad)
        assert fit(wrapped) == pytest.approx(fit(keras.optimizers.SGD(0.1)))
        accumulated = optimizers.GradientAccumulationOptimizer(keras.optimizers.SGD(0.1), 4, reduction_method="mean")
        assert 1 < fit(accumulated) < fit(keras.optimizers.SGD(0.1))


def test_clipping_is_that_of_the_optimizer_inside():
    wrapped = optimizers.CrossReplicaOptimizer(keras.optimizers.SGD(1.0, clipvalue=0.5))
    assert wrapped.clipvalue == 0.5 and wrapped.clipnorm is None
    wrapped.clipvalue = 0.25
    assert wrapped.inner_optimizer.clipvalue == 0.25 and steps(wrapped, [3.0]) == [0.75]
    with pytest.raises(UnsupportedError, match="ALSOptimizerSGD does not clip gradients"):
        optimizers.ALSOptimizerSGD().clipnorm = 1.0
