"""Operations that the host runs in the middle of a program of TensorFlow 1."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

outside = ipu.scopes.outside_compilation_scope


def test_values_go_out_and_come_back_while_a_variable_trains(graph, on_ipu):
    seen = []

    def computation(x):
        weight = tf.get_variable("weight", initializer=2.0, use_resource=True)
        loss = tf.reduce_sum(tf.square(weight * x))
        with outside():
            lengths = tf.strings.length(tf.strings.as_string(loss, precision=1))
            tf.py_func(lambda value: seen.append(float(value)), [loss], [])
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        with outside("again"):
            twice = tf.reshape(tf.numpy_function(lambda value: 2 * value, [loss], tf.float32), [])
        return lengths, twice, loss + twice, train

    x = tf.placeholder(tf.float32, [2])
    results = on_ipu(computation, [x])
    weight, losses = 2.0, []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            lengths, twice, both = session.run(results, {x: [1.0, 0.5]})
            losses.append(1.25 * weight**2)
            weight -= 0.1 * 2.5 * weight
            np.testing.assert_allclose(twice, 2 * losses[-1], rtol=1e-6)
            np.testing.assert_allclose(both, 3 * losses[-1], rtol=1e-6)
            assert lengths == len(f"{losses[-1]:.1f}")
    np.testing.assert_allclose(seen, losses, rtol=1e-6)


def test_no_inputs_and_no_outputs(graph, on_ipu):
    seen = []

    def computation():
        with outside():
            tf.py_func(lambda: seen.append("here"), [], [])

    result = on_ipu(computation)
    with tf.Session() as session:
        session.run(result)
        session.run(result)
    assert seen == ["here", "here"]


def test_loops_are_refused_when_the_program_runs(graph, on_ipu):
    def body(x):
        with outside():
            return tf.square(x)

    x = tf.placeholder(tf.float32, [])
    result = on_ipu(lambda x: ipu.loops.repeat(2, body, [x]), [x])
    with (
        tf.Session() as session,
        pytest.raises(
            tf.errors.UnimplementedError,
            match=r"`outside_compilation_scope` enclosed in control flow \(loop or cond\) is not supported",
        ),
    ):
        session.run(result, {x: 2.0})


def test_it_is_only_allowed_in_programs(graph):
    with (
        ipu.scopes.ipu_scope("/device:IPU:0"),
        pytest.raises(ValueError, match=r"^outside_compilation_scope is only allowed in XLA context$"),
        outside(),
    ):
        pass


def test_nesting_is_illegal(graph, on_ipu):
    def computation(x):
        with outside(), outside():
            return x

    with pytest.raises(ValueError, match=r"^Illegal nesting of outside_compilation_scope$"):
        on_ipu(computation, [tf.placeholder(tf.float32, [])])
