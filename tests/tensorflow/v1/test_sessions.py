"""A session with programs behaves as any other: variables are where they are asked for, and nothing runs elsewhere."""

import glob
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

from openipu.errors import UnsupportedError
from openipu.runtime import bring_all_home
from openipu.tensorflow.v1 import runner


@pytest.fixture
def counter(graph, on_ipu):
    """A variable, and a program that adds its input to it and returns the sum."""
    variable = tf.get_variable("counter", initializer=0.0, use_resource=True)
    given = tf.placeholder_with_default(1.0, [])
    (summed,) = on_ipu(lambda x: variable.assign_add(x), [given])
    return variable, given, summed


def initialised():
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return session


def test_the_variable_is_brought_home_for_every_kind_of_reader(counter, tmp_path, graph):
    variable, given, summed = counter
    doubled, saver = summed * 2.0, tf.train.Saver()
    with tf.control_dependencies([summed]):
        after = variable.read_value()
    with initialised() as session:
        assert [session.run(summed) for _ in range(3)] == [1.0, 2.0, 3.0]
        assert session.run(variable) == 3.0 and variable.eval(session) == 3.0
        assert session.run([summed, doubled]) == [4.0, 8.0]
        assert session.run([after, summed], {given: 2.0}) == [6.0, 6.0]
        assert session.run(summed) == 7.0
        saver.save(session, str(tmp_path / "model"))
        assert session.run(summed) == 8.0
        saver.restore(session, str(tmp_path / "model"))
        assert session.run(summed) == 8.0
        variable.load(20.0, session)
        assert session.run(summed) == 21.0 and session.run(summed.op) is None and session.run(variable) == 22.0
        assert session.make_callable(summed)() == 23.0 and session.make_callable(summed, [given])(7.0) == 30.0
        assert session.make_callable(variable)() == 30.0


def test_two_programs_share_a_variable_on_the_device(counter, on_ipu, monkeypatch):
    variable, _, summed = counter
    (squared,) = on_ipu(lambda: tf.square(variable))
    reads = []
    monkeypatch.setattr(type(variable), "read_value", None)
    with initialised() as session:
        session.run(summed)
        monkeypatch.setattr(runner.Value, "replace", lambda *_: reads.append(_))
        assert session.run([squared]) == [1.0]
        session.run(summed)
        assert session.run(squared) == 4.0
    assert reads == []


def test_two_sessions_have_a_value_each(counter):
    variable, _, summed = counter
    with initialised() as one, initialised() as two:
        assert [s.run(summed) for s in (one, one, two, one, two)] == [1.0, 2.0, 1.0, 3.0, 2.0]
        assert (one.run(variable), two.run(variable)) == (3.0, 2.0)


def test_values_that_others_bring_home_reach_the_session(counter):
    variable, given, summed = counter
    with initialised() as session, initialised() as other:
        session.run(summed)
        bring_all_home()
        assert session.run(variable) == 1.0 and session.run(summed) == 2.0
        assert other.run([summed, summed * 1.0], {given: 5.0}) == [5.0, 5.0]
        assert session.run(summed) == 3.0 and other.run(variable) == 5.0


def test_a_session_without_values_says_so(counter):
    with tf.Session() as session, pytest.raises(tf.errors.FailedPreconditionError):
        session.run(counter[2])


def test_a_program_that_must_wait_does(graph, on_ipu):
    variable = tf.get_variable("v", initializer=1.0, use_resource=True)
    with tf.control_dependencies([variable.assign(5.0)]):
        (doubled,) = on_ipu(lambda: variable.assign(variable * 2.0))
    with initialised() as session:
        assert [session.run(doubled) for _ in range(2)] == [10.0, 10.0] and session.run(variable) == 10.0


def test_threads_read_while_programs_run(counter):
    variable, _, summed = counter
    seen = []
    with initialised() as session:
        reader = threading.Thread(target=lambda: seen.extend(session.run(variable) for _ in range(20)))
        reader.start()
        for _ in range(20):
            session.run(summed)
        reader.join()
        assert session.run(variable) == 20.0
    assert seen == sorted(seen) and len(seen) == 20


def test_iterators_feed_programs_until_they_end(graph, on_ipu):
    rows = tf.placeholder(tf.float32, [4, 2])
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(2, drop_remainder=True)
    initializable = tf.data.make_initializable_iterator(dataset)
    one_shot = tf.data.make_one_shot_iterator(tf.data.Dataset.range(2, output_type=tf.float32))
    (first,) = on_ipu(tf.reduce_sum, [initializable.get_next()])
    element = one_shot.get_next()
    (second,) = on_ipu(lambda x: x + 1.0, [element])
    with tf.Session() as session:
        session.run(initializable.initializer, {rows: np.arange(8).reshape(4, 2)})
        assert [session.run(first) for _ in range(2)] == [6.0, 22.0]
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(first)
        # One element for both, although one of them is read beside the program.
        assert session.run([second, element]) == [1.0, 0.0] and session.run(second) == 2.0
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(second)


def test_a_monitored_session_trains_saves_and_goes_on(graph, on_ipu, tmp_path, caplog):
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        step = tf.train.get_or_create_global_step()
    weight = tf.get_variable("w", initializer=1.0, use_resource=True)

    def train():
        loss = tf.square(weight)
        return loss, tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss, global_step=step)

    (loss,) = on_ipu(train)
    tf.summary.scalar("loss", loss)

    def run(last):
        losses = []
        hooks = [tf.train.StopAtStepHook(last_step=last), tf.train.NanTensorHook(loss)]
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), hooks=hooks, save_checkpoint_steps=2, save_summaries_steps=2
        ) as session:
            while not session.should_stop():
                losses.append(session.run(loss))
        return losses

    first, second = run(3), run(5)
    expected, value, momentum = [], 1.0, 0.0
    for _ in range(5):
        expected.append(value**2)
        momentum = 0.9 * momentum + 2 * value
        value -= 0.1 * momentum
    np.testing.assert_allclose(first + second, expected, rtol=1e-5)
    assert (len(first), len(second)) == (3, 2) and glob.glob(str(tmp_path / "events*"))


def test_what_was_meant_for_the_ipu_does_not_run_on_the_host(graph, on_ipu):
    x = tf.placeholder(tf.float32, [2])
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        uncompiled = x * 2.0
        weight = tf.get_variable("w", [2], initializer=tf.random_normal_initializer(seed=1))
    (compiled,) = on_ipu(lambda a: a * weight, [x])
    with pytest.raises(UnsupportedError, match="outside of them"):
        ipu.cross_replica_ops.cross_replica_sum(x)
    with initialised() as session:
        for tensor in (uncompiled, uncompiled + 1.0):
            with pytest.raises(UnsupportedError, match="was placed on an IPU, but it is not part of a program"):
                session.run(tensor, {x: [1.0, 2.0]})
        np.testing.assert_allclose(session.run(compiled, {x: [1.0, 1.0]}), session.run(weight))
        with pytest.raises(UnsupportedError, match="partial_run is not supported"):
            session.partial_run_setup([compiled], [x])


def test_what_only_the_host_has_is_refused_by_name(graph, on_ipu):
    iterator = tf.data.make_one_shot_iterator(tf.data.Dataset.range(2))
    with pytest.raises(UnsupportedError, match="Take the element outside"):
        on_ipu(lambda: iterator.get_next())
    old = tf.get_variable("old", initializer=0, use_resource=False)
    with pytest.raises(UnsupportedError, match="enable_resource_variables"):
        on_ipu(lambda: tf.assign_add(old, 1))

    def summary():
        loss = tf.constant(1.0)
        tf.summary.scalar("loss", loss)
        return loss

    (loss,) = on_ipu(summary)
    with tf.Session() as session, pytest.raises(UnsupportedError, match="make its summary outside"):
        session.run(loss)


def test_replicas_keep_their_own_values_between_runs(on_ipu):
    ipu.config.reset_ipu_configuration()
    opts = ipu.utils.auto_select_ipus(ipu.utils.create_ipu_config(), 2)
    ipu.utils.configure_ipu_system(opts)
    with tf.Graph().as_default():
        variable = tf.get_variable("v", initializer=0.0, use_resource=True)

        def program():
            index = tf.cast(ipu.replication_ops.replication_index(), tf.float32)
            updated = variable.assign_add(index + 1.0)
            return ipu.cross_replica_ops.cross_replica_sum(updated)

        (total,) = on_ipu(program)
        doubled = total * 2.0
        with initialised() as session:
            assert session.run(total) == 3.0
            assert session.run(variable) == 1.0
            assert session.run(total) == 6.0 and session.run(doubled) == 18.0 and session.run(total) == 12.0
    ipu.config.reset_ipu_configuration()


def test_layers_of_keras_share_their_weights_when_used_twice(graph, on_ipu):
    x = tf.placeholder(tf.float32, [2, 3])
    layer = keras.layers.Dense(3, kernel_initializer="ones")
    results = on_ipu(lambda a: layer(layer(a)), [x])
    with initialised() as session:
        np.testing.assert_allclose(session.run(results, {x: np.ones((2, 3))})[0], np.full((2, 3), 9.0))
    assert len(tf.trainable_variables()) == 2 and tf2.is_tensor(results[0])
