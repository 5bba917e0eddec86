"""Pipelines made by hand with stages on devices of their own, against gradient descent in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from openipu.runtime import PipelineEngine
from openipu.tensorflow.pipelines import overlap
from tests.tensorflow.pipelines.test_pipeline import Method, Outfeed, expected, ops, strategy, trained

__all__ = ["strategy"]


@pytest.fixture
def engines(monkeypatch):
    """The engines of pipelines whose stages overlap."""
    found, make = [], overlap._runner
    monkeypatch.setattr(
        overlap, "_runner", lambda call, session, at: found.append(session.engine) or make(call, session, at)
    )
    return found


@pytest.mark.parametrize("schedule", list(ops.PipelineSchedule))
@pytest.mark.parametrize("method", list(Method))
def test_stages_on_their_own_devices_train_like_a_loop(strategy, engines, schedule, method):
    (losses, hidden), weights = trained(strategy(), 4, 2, pipeline_schedule=schedule, reduction_method=method)
    wanted, after = expected(4, 2, method is not Method.SUM)
    (engine,) = engines
    assert isinstance(engine, PipelineEngine)
    assert sorted(device.id for device in set(engine.executable.homes[0])) == [0, 1]
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert hidden.shape == (8, 3, 5)
    for weight, value in zip(weights, after, strict=True):
        np.testing.assert_allclose(weight, value, rtol=1e-5, atol=1e-6)


def test_a_keras_optimizer_and_accumulated_outputs(strategy, engines):
    arguments = {"outfeed_loss": True, "accumulate_outfeed": True, "gradient_accumulation_dtype": tf.float32}
    losses, weights = trained(strategy(), 4, 2, lambda: keras.optimizers.SGD(0.1), **arguments)
    wanted, after = expected(4, 2, False)
    np.testing.assert_allclose(losses, wanted.reshape(2, 4).sum(1), rtol=1e-5)
    np.testing.assert_allclose(weights[1], after[1], rtol=1e-5, atol=1e-6)
    assert len(engines) == 1


def test_replicas_take_turns_on_one_device(strategy, engines):
    losses, _ = trained(strategy(4), 4, 2, outfeed_loss=True)
    np.testing.assert_allclose(losses, expected(4, 2, False, replicas=2)[0].reshape(8, 2), rtol=1e-5)
    assert not engines


def test_inference_with_arguments_and_branches(strategy, engines):
    with strategy().scope():
        outfeed = Outfeed()

        def last(x):
            if tf.reduce_sum(x) > 5:
                return x * 10.0
            return x

        @tf.function(jit_compile=True)
        def program(x):
            ops.pipeline([lambda x: x + 1.0, last], 2, repeat_count=2, inputs=[x], outfeed_queue=outfeed)

        run = tf.distribute.get_strategy().run
        run(program, (tf.constant([1.0, 2.0]),))
        run(program, (tf.constant([1.0, 3.0]),))
    np.testing.assert_allclose(outfeed.dequeue(), [[2, 3]] * 4 + [[20, 40]] * 4)
    assert len(engines) == 1


@pytest.mark.parametrize("keeping", [lambda x: ipu.internal_ops.fifo(x, 1), lambda x: x * tf.cast(
    ipu.internal_ops.get_current_iteration_counter(), tf.float32)])  # fmt: skip
def test_stages_that_know_other_micro_batches_take_turns(strategy, engines, keeping):
    with strategy().scope():
        outfeed = Outfeed()

        @tf.function(jit_compile=True)
        def program(x):
            ops.pipeline([keeping, lambda x: x], 4, inputs=[x], outfeed_queue=outfeed)

        tf.distribute.get_strategy().run(program, (tf.constant(1.0),))
    assert outfeed.dequeue().shape == (4,) and not engines


def test_what_stands_beside_a_pipeline_is_part_of_the_program(strategy, engines):
    with strategy().scope():
        outfeed, count = Outfeed(), tf.Variable(0.0)

        @tf.function(jit_compile=True)
        def program(x):
            count.assign_add(1.0)
            ops.pipeline([lambda x: x, lambda x: x], 2, inputs=[x + 1.0], outfeed_queue=outfeed)
            return count.read_value()

        assert tf.distribute.get_strategy().run(program, (tf.constant(1.0),)) == 1.0
    np.testing.assert_allclose(outfeed.dequeue(), [2.0, 2.0])
    assert not engines
