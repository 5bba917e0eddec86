"""Floating-point exceptions that the configuration asks for stop a program, and say where."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu


@contextlib.contextmanager
def trapping(**wanted):
    ipu.config.reset_ipu_configuration()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    for name, value in wanted.items():
        setattr(config.floating_point_behaviour, name, value)
    config.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    try:
        with strategy.scope():
            yield strategy
    finally:
        ipu.config.reset_ipu_configuration()


def test_a_division_by_zero_stops_a_function_and_names_the_operation():
    @tf.function
    def quotient(x):
        return tf.divide(1.0, x, name="quotient") + 1.0

    with trapping(div0=True) as strategy:
        strategy.run(quotient, [tf.constant([1.0, 2.0])])
        with pytest.raises(tf.errors.InternalError, match=r"exception happened in .*quotient.*IPU will be"):
            strategy.run(quotient, [tf.constant([1.0, 0.0])])
    with trapping(inv=True) as strategy:
        assert np.isinf(strategy.run(quotient, [tf.constant([1.0, 0.0])])[1])


def test_an_overflow_stops_training_in_the_layer_that_makes_it():
    with trapping(oflo=True):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, name="wide", kernel_initializer="ones")])
        model.compile("sgd", "mse")
        good = np.ones((4, 2), np.float32)
        model.fit(good, good, batch_size=4, verbose=0)
        with pytest.raises(tf.errors.InternalError, match=r"happened in .*wide"):
            model.fit(good * 3e38, good, batch_size=4, verbose=0)
