"""Every way to a variable's value sees what a program left on the device."""

import copy

import numpy as np
import pytest
import tensorflow as tf

from openipu.tensorflow.capture.variables import resident


@pytest.fixture
def away(strategy):
    """A function that leaves the value 7 of a variable on the device."""
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0], name="kept")

    @tf.function
    def step():
        variable.assign(variable * 0.0 + 7.0)

    def make():
        variable.assign([1.0, 2.0])
        strategy.run(step)
        assert resident(variable).away
        return variable

    return make


READS = {
    "numpy": lambda v: v.numpy(),
    "value": lambda v: v.value(),
    "read_value": lambda v: v.read_value(),
    "convert": tf.convert_to_tensor,
    "array": np.array,
    "arithmetic": lambda v: v + 0.0,
    "operation": tf.identity,
    "slice": lambda v: v[:],
    "gather": lambda v: tf.gather(v, [0, 1]),
    "sparse_read": lambda v: v.sparse_read([0, 1]),
    "assign_add": lambda v: v.assign_add([0.0, 0.0]),
    "copy": lambda v: copy.deepcopy(v),
    "function": lambda v: tf.function(lambda: v + 0.0)(),
    "compiled function": lambda v: tf.function(lambda: v + 0.0, jit_compile=True)(),
    "argument": lambda v: tf.function(lambda w: w + 0.0)(v),
    "stack": lambda v: tf.stack([v])[0],
    "matmul": lambda v: tf.linalg.matvec(tf.eye(2), v),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_read(read, away):
    np.testing.assert_array_equal(np.array(read(away())), [7.0, 7.0])


def test_gradients_and_text(away):
    variable = away()
    assert "7." in repr(variable)
    away()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable * variable)
    np.testing.assert_array_equal(tape.gradient(loss, variable), [14.0, 14.0])


def test_a_function_traced_before_the_variable_was_on_the_device(strategy):
    with strategy.scope():
        variable = tf.Variable(1.0)
    traced = tf.function(lambda: variable * 2.0)
    concrete = traced.get_concrete_function()
    assert float(traced()) == float(concrete()) == 2.0

    @tf.function
    def step():
        variable.assign_add(1.0)

    strategy.run(step)
    assert float(traced()) == 4.0
    strategy.run(step)
    assert float(concrete()) == 6.0


def test_writes_reach_the_next_program(away, strategy):
    variable = away()

    @tf.function
    def read():
        return variable * 1.0

    variable.assign([3.0, 4.0])
    np.testing.assert_array_equal(strategy.run(read), [3.0, 4.0])
    variable.scatter_update(tf.IndexedSlices([9.0], [1]))
    np.testing.assert_array_equal(strategy.run(read), [3.0, 9.0])


def test_the_class_and_the_checkpoint_stay(away, tmp_path):
    variable = away()
    assert isinstance(variable, tf.Variable) and type(variable).__name__ == "ResourceVariable"
    checkpoint = tf.train.Checkpoint(v=variable)
    path = checkpoint.write(str(tmp_path / "c"))
    variable.assign([0.0, 0.0])
    checkpoint.read(path)
    np.testing.assert_array_equal(variable, [7.0, 7.0])
