"""Sessions of TensorFlow 1 whose program fails or is interrupted: the session's values are the true ones."""

import random

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from openipu.tensorflow.executor import run as execution
from tests.faults import interrupting
from tests.tensorflow.v1.conftest import graph, on_ipu  # noqa: F401


def counting():
    total = tf.get_variable("total", initializer=np.zeros(4, np.float32), use_resource=True)
    steps = tf.get_variable("steps", initializer=0, use_resource=True)
    changed = [tf.assign(total, total * 0.5 + 1), tf.assign_add(steps, 1)]
    with tf.control_dependencies(changed):
        return tf.identity(steps.read_value())


def test_a_program_that_fails_leaves_values_from_before_or_after_it(graph, on_ipu, monkeypatch):  # noqa: F811
    (made,) = on_ipu(counting)
    variables = tf.global_variables()
    run = execution.run_session

    def failing(*given):
        run(*given)
        raise RuntimeError("after the device was done")

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(made) == 1
        monkeypatch.setattr(execution, "run_session", failing)
        with pytest.raises((RuntimeError, tf.errors.OpError), match="after the device was done"):
            session.run(made)
        monkeypatch.setattr(execution, "run_session", run)
        found = dict(zip([v.op.name for v in variables], session.run(variables), strict=True))
        assert found["steps"] in (1, 2)
        expected = 1.0 if found["steps"] == 1 else 1.5
        np.testing.assert_array_equal(found["total"], np.full(4, expected, np.float32))
        assert session.run(made) == found["steps"] + 1


def test_interrupts_at_random_moments(graph, on_ipu):  # noqa: F811
    (made,) = on_ipu(counting)
    variables = tf.global_variables()
    inputs = [tf.placeholder(v.dtype.base_dtype, v.shape) for v in variables]
    assigned = [tf.assign(v, i) for v, i in zip(variables, inputs, strict=True)]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())

        def train(executions):
            for _ in range(executions):
                session.run(made)

        def put(values):
            session.run(assigned, dict(zip(inputs, values, strict=True)))

        train(1)
        state = lambda: session.run(variables)  # noqa: E731
        met = interrupting.check(train, state, put, random.Random(0), "session", 30, 0.1)
        assert max(met) > 1
