"""Whatever stops a training of Keras, its values are those before an execution or those after it."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from openipu import hardware
from tests.faults import interrupting

FILES = (
    "runtime/device_engine.py", "runtime/engine.py", "runtime/resident.py", "runtime/session.py", "runtime/feed.py",
    "runtime/tables.py", "keras/loop.py", "keras/logs.py", "keras/model_programs.py",
    "capture/variables.py", "configuration/devices.py",
)  # fmt: skip
X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((8, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def strategy():
    """One for all tests, so that what they train is compiled once."""
    from tensorflow.python import ipu

    ipu.config.reset_ipu_configuration()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    yield ipu.ipu_strategy.IPUStrategy()
    ipu.config.reset_ipu_configuration()
    assert not hardware.attached()


@pytest.fixture(scope="module")
def one(strategy):
    return Training(strategy, 1)


class Training:
    """A small model with optimizer state, statistics and a metric; one epoch is one execution on the same data."""

    def __init__(self, strategy, steps, batch=8):
        keras.utils.set_random_seed(1)
        with strategy.scope():
            layers = [keras.layers.Dense(6, "tanh"), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
            self.model = keras.Sequential([keras.Input((4,)), *layers])
            self.model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], steps_per_execution=steps)
        self.x, self.y, self.batch = np.concatenate([X] * steps), np.concatenate([Y] * steps), batch
        self.train(1)
        self.variables = [*self.model.weights, *self.model.optimizer.variables]

    def train(self, executions, **more):
        self.model.fit(self.x, self.y, self.batch, epochs=executions, verbose=0, shuffle=False, **more)

    def state(self):
        return [v.numpy() for v in self.variables]

    def put(self, values):
        for variable, value in zip(self.variables, values, strict=True):
            variable.assign(value)

    def either(self, action):
        """Whether an action of one execution left the values from after it; those from before are the only others."""
        before = self.state()
        self.train(1)
        after = self.state()
        self.put(before)
        try:
            action()
        finally:
            found = self.state()
            assert np.isfinite([float(v) for v in self.model.get_metrics_result().values()]).all()
            changed = [not np.array_equal(f, b) for f, b in zip(found, before, strict=True)]
            if any(changed):
                for mine, theirs in zip(found, after, strict=True):
                    np.testing.assert_array_equal(mine, theirs)
            self.put(before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_random_moments(one):
    met = interrupting.check(one.train, one.state, one.put, random.Random(0), "MLP", 60, 0.05)
    assert max(met) > 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_of_long_executions(strategy):
    long = Training(strategy, 8)
    met = interrupting.check(long.train, long.state, long.put, random.Random(0), "MLP, 8 steps", 20, 0.05)
    assert max(met) > 1


def test_an_exception_at_any_line_of_an_execution(one):
    line, stopped = 1, True
    while stopped:

        def action(line=line):
            nonlocal stopped
            stopped = interrupting.injected_at(line, lambda: one.train(1), FILES)

        one.either(action)
        # One in five: the others are looked at by the tests of residents and engines.
        line += 5
    assert line > 150


def test_an_exception_of_a_callback(one):
    class Stops(keras.callbacks.Callback):
        def __init__(self, name):
            super().__init__()
            setattr(self, name, self.stop)

        def stop(self, *_, **__):
            raise KeyboardInterrupt

    for name in ("on_train_begin", "on_epoch_begin", "on_train_batch_begin", "on_train_batch_end", "on_epoch_end"):

        def action(name=name):
            with pytest.raises(KeyboardInterrupt):
                one.train(1, callbacks=[Stops(name)])

        one.either(action)


def test_an_exception_of_the_data(one):
    def rows():
        for number in range(5):
            if number == 3:
                raise RuntimeError("the disk is gone")
            yield X, Y

    signature = tuple(tf.TensorSpec((8, n), tf.float32) for n in (4, 2))
    broken = tf.data.Dataset.from_generator(rows, output_signature=signature)
    start = one.state()
    with pytest.raises(Exception, match="the disk is gone"):
        one.model.fit(broken, steps_per_epoch=5, verbose=0)
    found = one.state()
    one.put(start)
    one.train(3)
    for mine, theirs in zip(found, one.state(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_interrupts_of_functions_run_by_the_strategy(strategy):
    with strategy.scope():
        a, b = tf.Variable(np.ones(64, np.float32)), tf.Variable(0)

    @tf.function
    def step():
        a.assign(a * 1.01 + 0.1)
        b.assign_add(1)

    def train(executions):
        for _ in range(executions):
            strategy.run(step)

    def put(values):
        a.assign(values[0]), b.assign(values[1])

    train(1)
    met = interrupting.check(train, lambda: [a.numpy(), b.numpy()], put, random.Random(0), "run", 40, 0.1)
    assert max(met) > 1


def test_interrupts_of_loops_that_are_fed(strategy):
    from tensorflow.python import ipu

    numbers = tf.data.Dataset.range(10**6).map(lambda i: tf.ones(4))
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(numbers), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    _ = infeed.initializer
    with strategy.scope():
        total, steps = tf.Variable(tf.zeros(4)), tf.Variable(0)

    @tf.function
    def loop():
        def body(x):
            total.assign(total * 0.5 + x)
            steps.assign_add(1)
            outfeed.enqueue(steps)

        ipu.loops.repeat(4, body, [], infeed)

    def train(executions):
        for _ in range(executions):
            strategy.run(loop)
            outfeed.dequeue()

    def put(values):
        total.assign(values[0]), steps.assign(values[1])

    train(1)
    state = lambda: [total.numpy(), steps.numpy()]  # noqa: E731
    met = interrupting.check(train, state, put, random.Random(0), "loop", 30, 0.1)
    assert max(met) > 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_scope_that_is_interrupted_is_left(strategy):
    def enter():
        with strategy.scope():
            assert tf.distribute.get_strategy() is strategy

    line, stopped = 1, True
    while stopped:
        stopped = interrupting.injected_at(line, enter, ("distribute/distribute_lib.py", "framework/ops.py"))
        assert not tf.distribute.has_strategy()
        line += 1
    assert line > 30
    with strategy.scope():
        assert tf.Variable(1.0)._distribute_strategy is strategy
