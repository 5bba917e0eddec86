"""Wrapping optimizers inside `strategy.run`, against the updates computed by hand."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

SGD = tf.compat.v1.train.GradientDescentOptimizer
Momentum = tf.compat.v1.train.MomentumOptimizer
GRADIENTS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], "float32")


@contextlib.contextmanager
def configured(replicas):
    ipu.config.reset_ipu_configuration()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = replicas
    config.configure_ipu_system()
    try:
        yield ipu.ipu_strategy.IPUStrategy()
    finally:
        ipu.config.reset_ipu_configuration()


def train(optimizer, gradients, replicas=1, initial=0.0):
    """The variable after each step, whose gradient on replica i is `gradient * (i + 1)`."""
    with configured(replicas) as strategy, strategy.scope():
        variable = tf.Variable(initial)
        optimizer = optimizer()

        @tf.function(jit_compile=True)
        def step(gradient):
            number = tf.cast(ipu.replication_ops.replication_index() + 1, tf.float32)
            with tf.GradientTape() as tape:
                loss = variable * gradient * number
            pairs = [(tape.gradient(loss, variable), variable)]
            optimizer.apply_gradients(pairs)
            return variable.read_value()

        return [float(strategy.run(step, args=(tf.constant(g),))) for g in gradients]


def test_averaged_gradients_are_added_up_by_the_strategy_again():
    # The mean over replicas with gradients 1, 2, 3, 4 is 2.5; the optimizer inside adds up four of it.
    wrapped = train(lambda: ipu.optimizers.CrossReplicaOptimizer(SGD(1.0)), [1.0], replicas=4)
    plain = train(lambda: SGD(1.0), [1.0], replicas=4)
    assert wrapped == plain == [-10.0]


def test_without_a_strategy_the_mean_is_applied(monkeypatch):
    from openipu.tensorflow.ops import collectives

    monkeypatch.setattr(collectives, "cross_replica_mean", lambda g: g / 4)
    variable = tf.Variable(1.0)
    ipu.optimizers.CrossReplicaOptimizer(SGD(1.0)).apply_gradients([(tf.constant(8.0), variable)])
    assert float(variable) == -1.0


@pytest.mark.parametrize("method", ["SUM", "MEAN", "RUNNING_MEAN"])
def test_gradients_of_several_steps_make_one_update(method):
    make = ipu.optimizers.GradientAccumulationOptimizerV2
    values = train(lambda: make(Momentum(1.0, 0.5), 3, reduction_method=method), GRADIENTS)
    scale = 1 if method == "SUM" else 3
    first, second = 7 / scale, 56 / scale
    after = [0, 0, -first, -first, -first, -first - (0.5 * first + second)]
    np.testing.assert_allclose(values, after, rtol=1e-5)


def test_replicas_accumulate_by_themselves_and_are_reduced_once():
    make = ipu.optimizers.CrossReplicaGradientAccumulationOptimizerV2
    values = train(lambda: make(SGD(1.0), 2), GRADIENTS[:4], replicas=2)
    # Both replicas have three times what one has; the mean of that is added up over the two.
    np.testing.assert_allclose(values, [0, -9, -9, -45])


def test_the_old_form_sums_for_plain_optimizers_only():
    values = train(lambda: ipu.optimizers.GradientAccumulationOptimizer(SGD(0.5), 2), GRADIENTS[:2])
    assert values == [0.0, -1.5]
    for name in ("GradientAccumulationOptimizer", "CrossReplicaGradientAccumulationOptimizer"):
        with pytest.raises(ValueError, match="Use GradientAccumulationOptimizerV2"):
            getattr(ipu.optimizers, name)(tf.compat.v1.train.AdamOptimizer(), 2)


def test_accumulators_have_the_dtype_asked_for():
    from openipu.tensorflow.ops.accumulation import Accumulators

    variable = tf.Variable(tf.ones([2], tf.float16))
    for rule, wanted in ((None, tf.float16), (tf.float32, tf.float32), (lambda v: tf.float32, tf.float32)):
        accumulators = Accumulators(2, dtype=rule)
        accumulators.build([variable])
        assert accumulators._totals[variable.ref()].dtype == wanted


def test_gradients_are_mapped_with_the_value_of_the_variable():
    variable = tf.Variable(3.0)
    optimizer = ipu.optimizers.MapGradientOptimizer(SGD(1.0), lambda grad, value: grad + 10 * value)
    ((gradient, found),) = optimizer.compute_gradients(lambda: variable * 2, [variable])
    assert float(gradient) == 32.0 and found is variable


def test_wrappers_pass_questions_on():
    inner = Momentum(0.1, 0.9)
    variable = tf.Variable(1.0)
    optimizer = ipu.optimizers.ShardedOptimizer(inner)
    optimizer.apply_gradients([(tf.constant(1.0), variable)])
    assert optimizer.get_slot_names() == ["momentum"]
    assert optimizer.get_slot(variable, "momentum") is inner.get_slot(variable, "momentum")
    assert len(optimizer.variables()) == 1


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match=r"Should use optimizer in keras\.ipu\.optimizers"):
        ipu.optimizers.IpuOptimizer(tf.keras.optimizers.SGD())
    with pytest.raises(ValueError, match="num_mini_batches must be a positive number"):
        ipu.optimizers.GradientAccumulationOptimizerV2(SGD(1.0), 0)


def test_a_loop_that_ends_in_the_middle_of_an_update_is_refused(strategy):
    with strategy.scope():
        weight = tf.Variable(1.0)
        optimizer = ipu.optimizers.GradientAccumulationOptimizerV2(SGD(0.1), 4)

        @tf.function(jit_compile=True)
        def program(count):
            for _ in range(count):
                optimizer.minimize(weight * weight, var_list=[weight])

        with pytest.raises(tf.errors.FailedPreconditionError, match="4 number of mini batches inside a loop with 6"):
            strategy.run(program, (6,))
        strategy.run(program, (8,))
    np.testing.assert_allclose(weight.numpy(), (1 - 0.8) ** 2, rtol=1e-5)


def test_gradients_of_shards_are_those_of_the_optimizer_inside(strategy):
    with strategy.scope():
        weight = tf.Variable(1.0)
        optimizer = ipu.optimizers.ShardedOptimizer(SGD(0.1))
        strategy.run(tf.function(lambda: optimizer.minimize(weight * weight, var_list=[weight]) and None))
    np.testing.assert_allclose(weight.numpy(), 0.8, rtol=1e-6)
