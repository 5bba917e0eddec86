"""Operations that the host runs in the middle of a program, in `strategy.run`."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from openipu.errors import UnsupportedError

outside = ipu.scopes.outside_compilation_scope

X = np.array([1.5, -2.0, 3.0], np.float32)


def test_a_value_goes_out_and_another_comes_back(strategy):
    @tf.function(jit_compile=True)
    def step(x):
        x = x * 2
        with outside():
            lengths = tf.strings.length(tf.strings.as_string(x, precision=1))
        return lengths * 10

    expected = [10 * len(f"{2 * value:.1f}") for value in X]
    for _ in range(2):
        np.testing.assert_array_equal(strategy.run(step, (X,)), expected)


def test_a_function_is_traced_for_several_shapes(strategy):
    @tf.function(jit_compile=True)
    def step(x):
        with outside():
            y = tf.ensure_shape(tf.numpy_function(lambda v: v[::-1], [x], tf.float32), x.shape)
        return y + 1

    for count in (1, 2, 3, 2):
        np.testing.assert_array_equal(strategy.run(step, (X[:count],)), X[:count][::-1] + 1)


def test_several_inputs_and_outputs_of_several_types(strategy):
    @tf.function
    def step(x, n, flag):
        with outside("first"):
            order = tf.argsort(x)
            total = tf.ensure_shape(tf.math.bincount(n, minlength=4, maxlength=4), [4])
            half = tf.cast(x, tf.float16) / 2
            contrary = tf.logical_not(flag)
            wide = tf.cast(n, tf.int64) + 1
        return order, total + 1, half, contrary, wide, x

    n = np.array([0, 3, 3, 1], np.int32)
    found = strategy.run(step, (X, n, np.array([True, False])))
    expected = np.argsort(X), [2, 2, 1, 3], X.astype(np.float16) / 2, [False, True], n + 1, X
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert [f.dtype for f in found] == [tf.int32, tf.int32, tf.float16, tf.bool, tf.int64, tf.float32]


def test_scopes_run_in_order_also_those_without_inputs_and_outputs(strategy):
    seen = []

    def note(what, *values):
        tf.py_function(lambda *given: seen.append((what, *(g.numpy().tolist() for g in given))), values, [])

    @tf.function(jit_compile=True)
    def step(x):
        with outside("a"):
            note("a")
        y = x + 1
        with outside("b"):
            note("b", y)
            note("c")
        with outside("d"):
            z = tf.ensure_shape(tf.numpy_function(lambda v: v * 3, [y], tf.float32), [3])
        with outside("e"):
            note("e", z)
        with outside("empty"):
            pass
        return y

    np.testing.assert_array_equal(strategy.run(step, (X,)), X + 1)
    assert seen == [("a",), ("b", (X + 1).tolist()), ("c",), ("e", ((X + 1) * 3).tolist())]
    strategy.run(step, (X,))
    assert len(seen) == 8


def test_results_are_used_in_functions_loops_and_branches_afterwards(strategy):
    @tf.function
    def inner(x):
        with outside():
            y = tf.py_function(lambda v: v + 1, [x], tf.float32)
            y.set_shape([3])
        return y

    @tf.function
    def step(x):
        y = inner(x)
        with outside():
            count = tf.strings.to_number(tf.constant("3"), tf.int32)
        total = tf.zeros_like(y)
        for _ in tf.range(count):
            total += y
        return tf.cond(tf.reduce_sum(y) > 0, lambda: total, lambda: -total), y

    for sign in (1, -1):
        x = np.full(3, sign * 2, np.float32)
        total, y = strategy.run(step, (x,))
        np.testing.assert_array_equal(y, x + 1)
        np.testing.assert_array_equal(total, sign * 3 * (x + 1))


def test_what_came_in_or_was_made_before_is_still_the_programs(strategy):
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["7", "8"], [70, 80]), -1)
    large = tf.constant(np.arange(5000), tf.int32)

    @tf.function
    def step(n):
        with outside():
            found = table.lookup(tf.strings.as_string(n)) + tf.reduce_sum(large)
            same = tf.identity(n)
        return found + n, same

    found, same = strategy.run(step, (np.array([8, 9, 7], np.int32),))
    np.testing.assert_array_equal(found, np.array([88, 8, 77]) + np.arange(5000).sum())
    np.testing.assert_array_equal(same, [8, 9, 7])


def test_the_host_has_loops_branches_and_functions_of_its_own(strategy):
    @tf.function
    def text_of(value):
        return tf.strings.as_string(value)

    @tf.function
    def step(n):
        with outside():
            total = tf.while_loop(
                lambda i, s: i < n, lambda i, s: (i + 1, s + tf.strings.length(text_of(i))), (0, tf.constant(0))
            )[1]
            sign = tf.cond(n > 50, lambda: tf.strings.to_number("1"), lambda: tf.strings.to_number("-1"))
        return total, sign

    for n, sign in ((12, -1), (101, 1)):
        found = strategy.run(step, (np.int32(n),))
        assert (int(found[0]), float(found[1])) == (sum(len(str(i)) for i in range(n)), sign)


def test_variables_are_read_and_not_assigned(strategy):
    with strategy.scope():
        weight = tf.Variable([1.0, 2.0, 3.0])

    @tf.function
    def step(x):
        weight.assign_add(x)
        with outside():
            doubled = tf.numpy_function(lambda v: 2 * v, [weight], tf.float32)
            doubled = tf.ensure_shape(doubled, [3])
        weight.assign(doubled)

    strategy.run(step, (X,))
    np.testing.assert_array_equal(weight, 2 * (np.array([1, 2, 3]) + X))

    @tf.function(autograph=False)
    def assigning(x):
        with outside("there"):
            weight.assign(x)

    with pytest.raises(UnsupportedError, match=r"name='there'.*AssignVariableOp.*can only be read"):
        strategy.run(assigning, (X,))


def test_every_replica_runs_them(strategy):
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    seen = []
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        @tf.function(jit_compile=True)
        def step(x):
            index = ipu.replication_ops.replication_index()
            y = x * tf.cast(1 + index, tf.float32)
            with outside():
                tf.py_function(lambda v: seen.append(float(v)), [y], [])
                z = tf.strings.to_number(tf.strings.as_string(y))
            queue.enqueue(z)

        strategy.run(step, (tf.constant(3.0),))
        np.testing.assert_array_equal(queue.dequeue(), [[3.0, 6.0]])
    assert sorted(seen) == [3.0, 6.0]


def test_gradients_stop_at_it(strategy):
    with strategy.scope():
        weight = tf.Variable(3.0)

    def step(stop):
        with tf.GradientTape() as tape:
            y = weight * weight
            with outside("host"):
                z = tf.square(y)
            loss = y * (tf.stop_gradient(z) if stop else z)
        return tape.gradient(loss, weight)

    assert float(strategy.run(tf.function(step, autograph=False), (True,))) == 81 * 2 * 3
    with pytest.raises(UnsupportedError, match=r"Gradients do not go through outside_compilation_scope.*'host'"):
        strategy.run(tf.function(step, autograph=False), (False,))


def test_shapes_must_be_static(strategy):
    @tf.function(autograph=False)
    def step(x):
        with outside("host"):
            y = tf.boolean_mask(x, x > 0)
        return tf.reduce_sum(y)

    with pytest.raises(UnsupportedError, match=r"name='host'.*float32 of shape \(None,\).*static shape"):
        strategy.run(step, (X,))


def test_strings_stay_on_the_host(strategy):
    @tf.function(autograph=False)
    def out(x):
        with outside():
            y = tf.strings.as_string(x)
        return tf.strings.length(y)

    @tf.function(autograph=False)
    def into(x):
        text = tf.strings.as_string(x)
        with outside():
            return tf.strings.length(text)

    with pytest.raises(UnsupportedError, match=r"string of shape \(3,\)"):
        strategy.run(out, (X,))
    with pytest.raises(UnsupportedError, match=r"a tensor of string of the program"):
        strategy.run(into, (X,))


def test_nesting_is_illegal_and_an_error_inside_leaves_no_trace(strategy):
    @tf.function(autograph=False)
    def step(x):
        with outside("a"):
            y = x + 1
            with outside("b"):
                return y + 1

    for _ in range(2):
        with pytest.raises(ValueError, match=r"^Illegal nesting of outside_compilation_scope$"):
            strategy.run(step, (X,))

    @tf.function
    def fine(x):
        with outside():
            return x + 1

    np.testing.assert_array_equal(strategy.run(fine, (X,)), X + 1)


@pytest.mark.parametrize("kind", ["cond", "while", "repeat", "function in a loop"])
def test_loops_and_branches_are_refused(strategy, kind):
    def host(x):
        with outside():
            return x + 1

    @tf.function
    def step(x):
        if kind == "cond":
            return tf.cond(tf.reduce_sum(x) > 0, lambda: host(x), lambda: x)
        if kind == "while":
            return tf.while_loop(lambda x: tf.reduce_sum(x) < 100, lambda x: [host(x)], [x])
        if kind == "repeat":
            return ipu.loops.repeat(3, host, [x])
        return tf.while_loop(lambda x: tf.reduce_sum(x) < 100, lambda x: [tf.function(host)(x)], [x])

    with pytest.raises(
        tf.errors.UnimplementedError,
        match=r"^`outside_compilation_scope` enclosed in control flow \(loop or cond\) is not supported",
    ):
        strategy.run(step, (X,))


def test_an_error_of_the_host_is_seen(strategy):
    def fail(value):
        raise RuntimeError("no such value")

    @tf.function
    def step(x):
        with outside():
            return tf.ensure_shape(tf.py_function(fail, [x], tf.float32), [3])

    with pytest.raises(Exception, match="no such value"):
        strategy.run(step, (X,))


def test_loops_of_the_host_are_allowed(strategy):
    seen = []

    def step(x):
        with outside():
            y = tf.ensure_shape(tf.numpy_function(lambda v: v + 1, [x], tf.float32), [3])
            tf.py_function(lambda v: seen.append(v.numpy().tolist()), [y], [])
        return 2 * y

    @tf.function
    def host(x):
        for _ in tf.range(3):
            x = strategy.run(step, (x,))
        return x

    x, expected = X, []
    for _ in range(3):
        expected.append((x + 1).tolist())
        x = 2 * (x + 1)
    with strategy.scope():
        np.testing.assert_array_equal(host(tf.constant(X)), x)
    assert seen == expected


def test_a_host_function_needs_a_second_thread(strategy, monkeypatch):
    monkeypatch.setattr(tf.config.threading, "get_inter_op_parallelism_threads", lambda: 1)

    @tf.function(autograph=False)
    def step(x):
        with outside("there"):
            return x + 1

    with strategy.scope(), pytest.raises(UnsupportedError, match=r"name='there'.*needs two threads"):
        tf.function(lambda x: strategy.run(step, (x,)), autograph=False)(X)
    np.testing.assert_array_equal(strategy.run(step, (X,)), X + 1)
