"""Queues that are used wrongly in a session say so, and leave the variables as they were."""

import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

from openipu.tensorflow.feeds import writer

Infeed, Outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue, ipu.ipu_outfeed_queue.IPUOutfeedQueue
LAST = ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST


def numbers(count=1000):
    return tf2.data.Dataset.range(count, output_type=tf.int32)


def test_dequeue_before_the_first_run_and_before_the_start(graph, on_ipu):
    infeed, every, last = Infeed(numbers()), Outfeed(), Outfeed(outfeed_mode=LAST)

    def body(x):
        return every.enqueue(x), last.enqueue(x)

    run = on_ipu(lambda: ipu.loops.repeat(2, body, [], infeed))
    values, value, start = every.dequeue(), last.dequeue(), infeed.initializer
    with tf.Session() as session:
        assert session.run(values).shape[0] == 0
        with pytest.raises(tf.errors.FailedPreconditionError, match="before it was executed"):
            session.run(value)
        with pytest.raises(tf.errors.FailedPreconditionError, match="Did you initialize the infeed_queue"):
            session.run(run)
        session.run(start)
        session.run(run)
        assert session.run([values, value])[1] == 1
    with pytest.raises(ValueError, match="which has not been enqueued"):
        Outfeed().dequeue()


def test_an_outfeed_that_nobody_reads_is_bounded(graph, on_ipu, monkeypatch, caplog):
    monkeypatch.setattr(writer, "LARGEST", 4 * 4 * 3)
    infeed, outfeed = Infeed(numbers()), Outfeed()
    run = on_ipu(lambda: ipu.loops.repeat(4, lambda x: outfeed.enqueue(x), [], infeed))
    values, start = outfeed.dequeue(), infeed.initializer
    with tf.Session() as session:
        session.run(start)
        for _ in range(6):
            session.run(run)
        assert session.run(values).tolist() == list(range(12, 24))
    assert sum("nobody has read" in record.message for record in caplog.records) == 1


def test_a_queue_of_two_programs(graph, on_ipu):
    infeed, outfeed = Infeed(numbers()), Outfeed()
    one = on_ipu(lambda: ipu.loops.repeat(2, lambda x: outfeed.enqueue(x), [], infeed))
    two = on_ipu(lambda: ipu.loops.repeat(3, lambda x: outfeed.enqueue(x * 10), [], infeed))
    with pytest.raises(ValueError, match="the same shapes in all programs"):
        on_ipu(lambda: ipu.loops.repeat(3, lambda x: outfeed.enqueue([x, x]), [], infeed))
    with pytest.raises(ValueError, match="An outfeed can only be enqueued once"):
        twice = on_ipu(lambda: ipu.loops.repeat(1, lambda x: (outfeed.enqueue(x), outfeed.enqueue(x)), [], infeed))
        with tf.Session() as session:
            session.run(infeed.initializer)
            session.run(twice)
    values = outfeed.dequeue()
    fresh = Infeed(numbers())
    assert fresh.initializer is not None and values is not None and one is not two


@pytest.mark.parametrize("eager", [True, False])
def test_elements_of_unequal_shapes_leave_the_variables(strategy, on_ipu, eager):
    def rows():
        yield from (np.ones(2, np.float32), np.ones(2, np.float32), np.ones(3, np.float32))

    def dataset():
        return tf2.data.Dataset.from_generator(rows, output_signature=tf2.TensorSpec([2], tf.float32))

    def step(total, x):
        total.assign_add(tf.reduce_sum(x), read_value=False)

    with pytest.raises(ValueError, match="not fully defined"):
        Infeed(tf2.data.Dataset.from_generator(rows, output_signature=tf2.TensorSpec([None], tf.float32)))
    if eager:
        with strategy.scope():
            total, infeed = tf2.Variable(0.0), Infeed(dataset())
            infeed.initializer  # noqa: B018

            @tf2.function
            def program():
                ipu.loops.repeat(3, lambda x: step(total, x), [], infeed)

            with pytest.raises((tf.errors.InvalidArgumentError, TypeError, ValueError)):
                strategy.run(program)
            assert float(total) == 0.0
        return
    with tf.Graph().as_default():
        total = tf.get_variable("total", initializer=0.0, use_resource=True)
        infeed = Infeed(tf2.data.Dataset.from_tensor_slices(np.ones((3, 2), np.float32)))
        run = on_ipu(lambda: ipu.loops.repeat(4, lambda x: step(total, x), [], infeed))
        start = infeed.initializer
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), start])
            with pytest.raises(tf.errors.OutOfRangeError, match="ended early"):
                session.run(run)
            assert session.run(total) == 0.0
