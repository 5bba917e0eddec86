"""Functions run as programs on several replicas, with the results of all of them."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf


@contextlib.contextmanager
def strategy_on(replicas):
    """A strategy on as many virtual IPUs."""
    from tensorflow.python import ipu

    ipu.config.reset_ipu_configuration()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = replicas
    config.configure_ipu_system()
    try:
        yield ipu.ipu_strategy.IPUStrategy()
    finally:
        ipu.config.reset_ipu_configuration()


@pytest.fixture
def configured():
    """`with configured(replicas) as strategy`."""
    return strategy_on


@pytest.fixture
def on_replicas():
    """`run(replicas, function, *arrays)`: what every replica computes, stacked; replica i gets `arrays[...][i]`."""
    from tensorflow.python import ipu

    def run(replicas, function, *arrays):
        @tf.function(jit_compile=True)
        def program(*stacked):
            index = ipu.replication_ops.replication_index()
            results = function(*(tf.gather(value, index) for value in stacked))
            return tf.nest.map_structure(lambda r: ipu.all_to_all_op.all_gather(r, replicas), results)

        with strategy_on(replicas) as strategy, strategy.scope():
            outputs = strategy.run(program, args=tuple(tf.constant(a) for a in arrays))
        return tf.nest.map_structure(lambda t: t.numpy(), outputs)

    return run


@pytest.fixture
def on_device():
    """`run(function, *arrays)`: what a program on one virtual IPU computes."""

    def run(function, *arrays):
        with strategy_on(1) as strategy, strategy.scope():
            program = tf.function(function, jit_compile=True)
            outputs = strategy.run(program, args=tuple(tf.constant(a) for a in arrays))
        return tf.nest.map_structure(lambda t: t.numpy() if tf.is_tensor(t) else t, outputs)

    return run


@pytest.fixture
def rng():
    """The same numbers in every run."""
    return np.random.default_rng(7)
