"""Values go into and out of programs on the device in the order and with the shapes of the original."""

# ruff: noqa: B018  (reading `initializer` is how programs start a queue)

import os
import signal
import threading

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from openipu.errors import UnsupportedError
from openipu.tensorflow.feeds import writer

Infeed, Outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue, ipu.ipu_outfeed_queue.IPUOutfeedQueue
LAST = ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST


def numbers(count=1000):
    return tf.data.Dataset.range(count, output_type=tf.int32)


def echo(strategy, infeed, outfeed, n):
    """A program that sends n elements from one queue to the other."""

    def body(element):
        outfeed.enqueue(element)

    @tf.function(jit_compile=True)
    def program(count):
        ipu.loops.repeat(count if n is None else n, body, [], infeed)

    return lambda count=n: strategy.run(program, (tf.constant(count),))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_elements_go_to_replicas_in_turn_and_come_back_with_a_replica_axis(replicated, replicas, known):
    strategy = replicated(replicas)
    with strategy.scope():
        infeed, every, last = Infeed(numbers().batch(3, drop_remainder=True)), Outfeed(), Outfeed(LAST)

        @tf.function
        def program(n):
            for _ in tf.range(5 if known else n):
                element = infeed._dequeue()
                every.enqueue({"a": element, "b": (element[0],)})
                last.enqueue([element])
            return element

        infeed.initializer
        results = [strategy.run(program, (tf.constant(5),)) for _ in range(2)]
    elements = np.arange(30 * replicas).reshape(10, replicas, 3)
    expected = elements[:, 0] if replicas == 1 else elements
    values = every.dequeue()
    np.testing.assert_array_equal(values["a"], expected)
    np.testing.assert_array_equal(values["b"][0], expected[..., 0])
    np.testing.assert_array_equal(last.dequeue()[0], expected[-1])
    np.testing.assert_array_equal(results[1], elements[-1, 0])
    assert every.dequeue()["a"].shape == (0, *expected.shape[1:])


def test_a_loop_trains_as_the_same_steps_elsewhere(strategy):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((12, 8, 4)).astype(np.float32), rng.standard_normal((12, 8, 1)).astype(np.float32)

    def made():
        return tf.Variable(np.linspace(-1, 1, 4, dtype=np.float32)[:, None])

    def step(w, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(x @ w) - y))
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    stock = made()
    expected = [float(step(stock, *pair)) for pair in zip(x, y, strict=True)]
    with strategy.scope():
        w, losses = made(), Outfeed()
        infeed = Infeed(tf.data.Dataset.from_tensor_slices({"y": y, "x": x}))

        def body(total, x, y):
            loss = step(w, x, y)
            return total + loss, losses.enqueue(loss)

        @tf.function(jit_compile=True)
        def program():
            return ipu.loops.repeat(6, body, 0.0, infeed)

        infeed.initializer
        totals = [float(strategy.run(program)) for _ in range(2)]
    np.testing.assert_allclose(losses.dequeue(), expected, rtol=1e-5)
    np.testing.assert_allclose(totals, [sum(expected[:6]), sum(expected[6:])], rtol=1e-5)
    np.testing.assert_allclose(w, stock, rtol=1e-5)


def test_loops_in_loops_with_several_values_and_a_condition(strategy):
    with strategy.scope():
        infeed = Infeed(numbers())

        @tf.function
        def program():
            def inner(total, element):
                return total + element

            def outer(i, total):
                return i + 1, ipu.loops.repeat(3, inner, total, infeed)

            return ipu.loops.while_loop(lambda i, total: i < 4, outer, [0, 0])

        infeed.initializer
        i, total = strategy.run(program)
    assert (int(i), int(total)) == (4, sum(range(12)))


def test_elements_in_a_branch_are_taken_only_when_it_is(strategy):
    with strategy.scope():
        infeed, outfeed = Infeed(numbers()), Outfeed()

        @tf.function
        def program(flag):
            if flag:
                outfeed.enqueue(infeed._dequeue() * 10)
            return flag

        infeed.initializer
        for flag in (True, False, True):
            strategy.run(program, (tf.constant(flag),))
    assert outfeed.dequeue().numpy().tolist() == [0, 10]


@pytest.mark.parametrize("known", [True, False])
def test_an_infeed_that_ends_early_leaves_the_variables_as_they_were(strategy, known):
    with strategy.scope():
        total = tf.Variable(0)
        infeed = Infeed(numbers(7))

        @tf.function
        def program(n):
            for _ in tf.range(5 if known else n):
                total.assign_add(infeed._dequeue())

        infeed.initializer
        strategy.run(program, (tf.constant(5),))
        assert int(total) == 10
        with pytest.raises(tf.errors.OutOfRangeError):
            strategy.run(program, (tf.constant(5),))
        assert int(total) == 10
        infeed.initializer
        strategy.run(program, (tf.constant(5),))
        assert int(total) == 20


@pytest.mark.parametrize("known", [True, False])
def test_elements_that_nobody_looks_at_are_taken(strategy, known):
    with strategy.scope():
        infeed, outfeed = Infeed(numbers()), Outfeed()

        @tf.function
        def skip(n):
            for _ in tf.range(4 if known else n):
                infeed._dequeue()

        infeed.initializer
        strategy.run(skip, (tf.constant(4),))
        echo(strategy, infeed, outfeed, 2)()
    assert outfeed.dequeue().numpy().tolist() == [4, 5]


def test_an_interrupted_wait_for_an_element_loses_none(strategy):
    held, asked, over = threading.Event(), threading.Event(), threading.Event()

    def elements():
        for number in range(10):
            if number == 4:
                asked.set()
                held.wait(60)
            yield number

    dataset = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec((), tf.int32))
    with strategy.scope():
        total, infeed, outfeed = tf.Variable(0), Infeed(dataset), Outfeed()

        @tf.function
        def program(n):
            for _ in tf.range(n):
                element = infeed._dequeue()
                total.assign_add(element)
                outfeed.enqueue(element)

        infeed.initializer
        strategy.run(program, (tf.constant(3),))

        def interrupt():
            asked.wait(60)
            # Again, as a person would: one that comes while a callback of the collector runs is only reported.
            while not over.is_set():
                os.kill(os.getpid(), signal.SIGINT)
                over.wait(5)

        with pytest.raises(KeyboardInterrupt):
            # TensorFlow may have asked already.
            threading.Thread(target=interrupt).start()
            try:
                strategy.run(program, (tf.constant(5),))
            finally:
                over.set()
        assert int(total) == 3
        held.set()
        strategy.run(program, (tf.constant(2),))
    # What the interrupted execution had used is gone with it; what it waited for, or had not asked for, is not.
    assert outfeed.dequeue().numpy().tolist() in ([0, 1, 2, 4, 5], [0, 1, 2, 3, 4])


def test_programs_of_one_infeed_take_turns(strategy):
    with strategy.scope():
        infeed, one, two = Infeed(numbers()), Outfeed(), Outfeed()
        infeed.initializer
        small, large = echo(strategy, infeed, one, 2), echo(strategy, infeed, two, 3)
        small(), large(), small(), large()
    assert one.dequeue().numpy().tolist() == [0, 1, 5, 6]
    assert two.dequeue().numpy().tolist() == [2, 3, 4, 7, 8, 9]


def test_an_iterator_is_an_argument_of_the_function(strategy):
    with strategy.scope():
        iterator = iter(numbers().batch(2, drop_remainder=True))
        assert isinstance(iterator, ipu.ipu_infeed_queue.IPUOwnedIterator)
        with pytest.raises(RuntimeError, match="can not be accessed in eager mode"):
            next(iterator)
        with pytest.raises(NotImplementedError):
            iterator.get_next_as_optional()

        @tf.function(jit_compile=True)
        def program(iterator):
            total = 0
            for _ in tf.range(2):
                total += tf.reduce_sum(next(iterator))
            return total + tf.reduce_sum(iterator.get_next())

        assert [int(strategy.run(program, (iterator,))) for _ in range(2)] == [15, 51]
    plain = ipu.ipu_strategy.IPUStrategy(enable_dataset_iterators=False)
    with plain.scope():
        assert int(next(iter(numbers()))) == 0
    assert int(next(iter(numbers()))) == 0


def test_a_queue_is_read_by_iteration_and_from_another_thread(strategy):
    with strategy.scope():
        infeed, outfeed = Infeed(numbers()), Outfeed()
        assert _in_thread(outfeed.dequeue) == []
        infeed.initializer
        run = echo(strategy, infeed, outfeed, 4)
        run()
        assert [int(value) for value in outfeed] == [0, 1, 2, 3]
        assert [int(value) for value in outfeed] == []
        run()
        assert _in_thread(outfeed.dequeue).numpy().tolist() == [4, 5, 6, 7]


def _in_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_an_outfeed_that_nobody_reads_is_bounded(strategy, monkeypatch, caplog):
    monkeypatch.setattr(writer, "LARGEST", 4 * 4 * 3)
    with strategy.scope():
        infeed, outfeed = Infeed(numbers()), Outfeed()
        infeed.initializer
        run = echo(strategy, infeed, outfeed, 4)
        for _ in range(6):
            run()
    assert outfeed.dequeue().numpy().tolist() == list(range(12, 24))
    assert sum("nobody has read" in record.message for record in caplog.records) == 1


def test_what_a_queue_refuses(strategy):
    dataset = numbers()
    with pytest.raises(ValueError, match="prefetch_depth must be greater than zero, but it is 0"):
        Infeed(dataset, prefetch_depth=0)
    with pytest.raises(ValueError, match="prefetch_depth must be less than 256, but it is 256"):
        Infeed(dataset, prefetch_depth=256)
    with pytest.raises(ValueError, match="Device ordinal must be an integer"):
        Infeed(dataset, device_ordinal="0")
    with pytest.raises(ValueError, match="Device ordinal must be >= 0"):
        Infeed(dataset, device_ordinal=-1)
    with pytest.raises(ValueError, match="set `drop_remainder=True`"):
        Infeed(dataset.batch(3))
    with pytest.raises(ValueError, match="obsolete"):
        Infeed(dataset).get_next()
    with pytest.raises(tf.errors.NotFoundError):
        Infeed(dataset).deleter
    with pytest.raises(ValueError, match="Either `dataset` or both"):
        ipu.ipu_infeed_queue.IPUIterator()
    with pytest.raises(ValueError, match="Expected `outfeed_mode` value to be of"):
        Outfeed("name")
    with pytest.raises(ValueError, match="buffer depth"):
        Outfeed(buffer_depth=0)
    with pytest.raises(ValueError, match="which has not been enqueued"):
        Outfeed().dequeue()
    with pytest.raises(RuntimeError, match=r"IPUOutfeedMode\.ALL"):
        iter(Outfeed(LAST))


def test_queues_that_are_used_in_the_wrong_order(strategy):
    with strategy.scope():
        infeed, outfeed = Infeed(numbers()), Outfeed(LAST)
        run = echo(strategy, infeed, outfeed, 2)
        with pytest.raises(tf.errors.FailedPreconditionError, match="Did you initialize the infeed_queue"):
            run()
        with pytest.raises(tf.errors.FailedPreconditionError, match="before it was executed"):
            outfeed.dequeue()
        infeed.initializer
        run()
        assert int(outfeed.dequeue()) == 1


def test_an_outfeed_is_enqueued_once_and_with_the_same_shapes(strategy):
    with strategy.scope():
        outfeed = Outfeed()

        @tf.function
        def twice(x):
            outfeed.enqueue(x)
            outfeed.enqueue(x)

        with pytest.raises(ValueError, match="An outfeed can only be enqueued once"):
            strategy.run(twice, (tf.ones(2),))

        @tf.function
        def other(x):
            outfeed.enqueue(x)

        with pytest.raises(ValueError, match="the same shapes in all programs"):
            strategy.run(other, (tf.ones(3),))


def test_a_queue_is_not_shared_by_programs_with_different_replicas(replicated):
    infeed, outfeed = Infeed(numbers()), Outfeed()
    infeed.initializer
    echo(replicated(1), infeed, outfeed, 2)()
    with pytest.raises(ValueError, match="different numbers of replicas"):
        echo(replicated(2), infeed, Outfeed(), 2)()


@pytest.mark.parametrize(
    ("body", "inputs", "error", "message"),
    [
        (lambda x: (tf.no_op(), x), [1.0], ValueError, "followed by zero or more Operations"),
        (lambda x: tf.cast(x, tf.int32), [1.0], TypeError, "Mismatch between input types and output types"),
        (lambda: None, [1.0], TypeError, "You specified 1 inputs"),
        (lambda x: object(), [1.0], ValueError, "must return zero or more Tensor values"),
        (lambda x: None, [1.0], TypeError, "Mismatch between input types and output types"),
    ],
)
def test_bodies_that_a_loop_refuses(strategy, body, inputs, error, message):
    @tf.function
    def program():
        return ipu.loops.repeat(2, body, inputs)

    with pytest.raises(error, match=message):
        strategy.run(program)


def test_a_body_knows_its_iteration_and_values_of_earlier_ones(strategy):
    with strategy.scope():
        out = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        @tf.function(jit_compile=True)
        def program():
            def body(x):
                number = ipu.internal_ops.get_current_iteration_counter()
                out.enqueue((number, ipu.internal_ops.fifo(x, 2), ipu.internal_ops.fifo(x, 0)))
                return x + 1.0

            return ipu.loops.repeat(4, body, [5.0])

        strategy.run(program)
        number, delayed, same = out.dequeue()
        np.testing.assert_array_equal(number, [0, 1, 2, 3])
        np.testing.assert_array_equal(delayed, [0, 0, 5, 6])
        np.testing.assert_array_equal(same, [5, 6, 7, 8])
        with pytest.raises(UnsupportedError, match="range gives"):
            ipu.internal_ops.get_current_iteration_counter()
