"""Training loops of the user's own: functions that run as one program on a virtual IPU."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from openipu.errors import UnsupportedError


def test_a_function_with_variables_and_nested_structures(strategy):
    with strategy.scope():
        total = tf.Variable(1.0)

        @tf.function(jit_compile=True)
        def step(pair, *, scale, name):
            total.assign_add(tf.reduce_sum(pair["a"]) * scale)
            assert name == "x"
            return {"sum": total.read_value(), "both": [pair["a"] + pair["b"], pair["b"]], "none": None}

        pair = {"a": tf.constant([1.0, 2.0]), "b": np.array([5, 6], np.float32)}
        for expected in (7.0, 13.0):
            result = strategy.run(step, args=[pair], kwargs={"scale": 2.0, "name": "x"})
            assert float(result["sum"]) == expected == float(total)
    assert result["none"] is None and tf.is_tensor(result["sum"])
    np.testing.assert_array_equal(result["both"][0], [6.0, 8.0])
    assert strategy.experimental_local_results(result["sum"])[0] is result["sum"]


def test_python_arguments_are_part_of_the_program(strategy):
    @tf.function
    def power(x, n):
        return x**n

    assert [float(strategy.run(power, (tf.constant(3.0), n))) for n in (1, 2, 3, 2)] == [3.0, 9.0, 27.0, 9.0]
    assert strategy.run(power, (tf.constant([2.0, 3.0]), 2)).numpy().tolist() == [4.0, 9.0]


def test_variables_as_arguments(strategy):
    with strategy.scope():
        one, other = tf.Variable(1.0), tf.Variable(10.0)
    traces = []

    @tf.function
    def add(variable, x):
        traces.append(variable)
        variable.assign_add(x)
        return variable * 2.0

    assert [float(strategy.run(add, (v, tf.constant(1.0)))) for v in (one, one, other)] == [4.0, 6.0, 22.0]
    assert (float(one), float(other)) == (3.0, 11.0)


def test_training_with_a_tape_and_an_optimizer_like_the_same_loop_elsewhere(strategy):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((10, 8, 4)).astype(np.float32), rng.standard_normal((10, 8, 1)).astype(np.float32)

    def loop(model, optimizer, run):
        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return [float(run(step, (x[i], y[i]))) for i in range(10)]

    def made():
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(6, "tanh"), keras.layers.Dense(1)])
        optimizer = keras.optimizers.Adam(0.01, epsilon=1e-3)
        optimizer.build(model.trainable_variables)
        return model, optimizer

    stock, optimizer = made()
    expected = loop(stock, optimizer, lambda step, args: step(*args))
    with strategy.scope():
        model, optimizer = made()
        losses = loop(model, optimizer, strategy.run)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for one, other in zip(stock.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(model.predict(x[0], batch_size=8, verbose=0), stock(x[0]), rtol=1e-4, atol=1e-6)


def test_variables_that_the_first_call_creates(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(2)])
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x)))
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        losses = [float(strategy.run(step, (tf.ones((4, 3)),))) for _ in range(5)]
    assert losses[-1] < losses[0]


def test_a_loop_on_the_device(strategy):
    with strategy.scope():
        count = tf.Variable(0, dtype=tf.int32)

        @tf.function
        def many(n):
            total = 0.0
            for i in tf.range(n):
                count.assign_add(1)
                if i % 2 == 0:
                    total += tf.cast(i, tf.float32)
            return total

        assert float(strategy.run(many, (tf.constant(10),))) == 20.0
        assert int(count) == 10


def test_run_inside_a_function_of_the_host(strategy):
    with strategy.scope():
        weight = tf.Variable(2.0)

        def step(x):
            weight.assign(weight * 2.0)
            return weight * x

        @tf.function
        def epoch(data):
            total = 0.0
            for x in data:
                total += strategy.run(step, (x,))
            return total, weight.read_value()

        total, last = epoch(tf.constant([1.0, 10.0]))
    assert (float(total), float(last), float(weight)) == (84.0, 8.0, 8.0)


def test_reductions(strategy):
    with strategy.scope():

        @tf.function
        def step(x):
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, x), context.replica_id_in_sync_group

        value, replica = strategy.run(step, (tf.constant(3.0),))
        assert float(value) == 3.0 and int(replica) == 0
        assert float(strategy.reduce(tf.distribute.ReduceOp.MEAN, value, axis=None)) == 3.0
        assert strategy.num_replicas_in_sync == 1
        assert tf.distribute.get_strategy() is strategy


def test_weights_of_keras_programs_and_of_functions_are_the_same(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, use_bias=False)])
        model.compile("sgd", "mse")

        @tf.function
        def kernel():
            return model.layers[0].kernel * 1.0

        first = strategy.run(kernel)
        model.fit(np.ones((8, 2)), np.zeros((8, 1)), batch_size=4, verbose=0)
        second = strategy.run(kernel)
    assert not np.allclose(first, second)
    np.testing.assert_array_equal(second, model.get_weights()[0])


def test_refusals(strategy):
    with pytest.raises(ValueError, match=r"IPUStrategyV1.run\(fn, ...\) does not support eager execution"):
        strategy.run(lambda x: x, (1.0,))
    double = tf.function(lambda x: tf.cast(x, tf.float64))
    with pytest.raises(TypeError, match="Unsupported data type for input: float64"):
        strategy.run(double, (tf.constant(1.0, tf.float64),))
    with pytest.raises(TypeError, match="Unsupported data type for output: float64"):
        strategy.run(double, (tf.constant(1.0),))
    with pytest.raises(RuntimeError, match=r"`experimental_run_v2` has been deleted. Use `run` instead."):
        strategy.experimental_run_v2(double)
    numbers = iter(tf.data.Dataset.range(3))
    take = tf.function(lambda iterator: next(iterator))
    for function, arguments in ((take, (numbers,)), (tf.function(lambda: next(numbers)), ())):
        with pytest.raises(UnsupportedError, match=r"not a variable \(IteratorResource\).*for batch in dataset"):
            strategy.run(function, arguments)
    with strategy.scope():
        kept = tf.Variable(5.0)

    @tf.function
    def impossible(x):
        kept.assign(0.0)
        return tf.strings.as_string(x)

    with pytest.raises(UnsupportedError, match="impossible cannot be compiled for the IPU"):
        strategy.run(impossible, (tf.constant(1.0),))
    assert float(kept) == 5.0


def test_random_numbers_differ_between_runs_and_repeat_after_a_reset(strategy):
    @tf.function
    def draw():
        return tf.random.normal((4,))

    def twice():
        ipu.utils.reset_ipu_seed(42)
        return [strategy.run(draw).numpy().tolist() for _ in range(2)]

    first = twice()
    assert first[0] != first[1]
    assert twice() == first


@pytest.mark.parametrize(("ipus", "replicas"), [(2, 1), (4, 2), (8, 4)])
def test_shards_take_ipus_from_replicas(ipus, replicas):
    ipu.config.reset_ipu_configuration()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()

    @tf.function(jit_compile=True)
    def sharded(x):
        with ipu.scopes.ipu_shard(0):
            y = x * 2.0
        with ipu.scopes.ipu_shard(1):
            z = tf.reduce_sum(y + 1.0)
        return ipu.cross_replica_ops.cross_replica_sum(z)

    with strategy.scope():
        assert float(strategy.run(sharded, args=(tf.ones([3]),))) == 9.0 * replicas
    ipu.config.reset_ipu_configuration()


def test_too_few_ipus_for_the_shards(strategy):
    @tf.function(jit_compile=True)
    def sharded(x):
        with ipu.scopes.ipu_shard(3):
            return x * 2.0

    with strategy.scope(), pytest.raises(ValueError, match=r"has 1 IPUs attached, however .* requires a multiple of 4"):
        strategy.run(sharded, args=(tf.ones([3]),))


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_stochastic_rounding_makes_casts_right_on_average(dtype):
    def means(rounding):
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.floating_point_behaviour.esr = rounding
        config.configure_ipu_system()
        ipu.utils.reset_ipu_seed(3)
        strategy = ipu.ipu_strategy.IPUStrategy()

        @tf.function
        def cast(x):
            return tf.cast(tf.cast(x, dtype), tf.float32)

        try:
            return [strategy.run(cast, (tf.fill([20_000], 3.1415927),)).numpy() for _ in range(2)]
        finally:
            ipu.config.reset_ipu_configuration()

    behaviour = ipu.config.StochasticRoundingBehaviour
    one, other = means(behaviour.ON)
    assert len(np.unique(one)) == 2 and (one != other).any()
    step = np.ptp(one)
    up = (np.float32(3.1415927) - one.min()) / step
    np.testing.assert_allclose(one.mean(), 3.1415927, atol=5 * step * np.sqrt(up * (1 - up) / 20_000))
    np.testing.assert_allclose(one.std(), step * np.sqrt(up * (1 - up)), rtol=0.05)
    np.testing.assert_array_equal(means(behaviour.ON)[0], one)
    assert len(np.unique(means(behaviour.OFF)[0])) == 1
