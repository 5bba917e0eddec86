"""Pipelines made by hand compute what a plain loop over micro-batches computes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from openipu.tensorflow.ops.gradient_reduction import GradientAccumulationReductionMethod as Method

v1 = tf.compat.v1
ops = ipu.pipelining_ops
Infeed, Outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue, ipu.ipu_outfeed_queue.IPUOutfeedQueue
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((64, 3, 4)).astype(np.float32), RNG.standard_normal((64, 3, 2)).astype(np.float32)
W = [RNG.standard_normal(shape).astype(np.float32) / 2 for shape in ((4, 5), (5, 2))]


@pytest.fixture
def strategy():
    """Makes a strategy on so many IPUs."""

    def make(ipus=2):
        ipu.config.reset_ipu_configuration()
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = ipus
        config.configure_ipu_system()
        return ipu.ipu_strategy.IPUStrategy()

    yield make
    ipu.config.reset_ipu_configuration()


def expected(count, repeats, mean, replicas=1):
    """Plain gradient descent in NumPy: losses of all micro-batches, and the weights after every update."""
    first, second = (w.copy() for w in W)
    losses, element = [], 0
    for _ in range(repeats):
        sums = [np.zeros_like(first), np.zeros_like(second)]
        for _ in range(count * replicas):
            x, y = X[element], Y[element]
            hidden = np.tanh(x @ first)
            error = hidden @ second - y
            losses.append((error**2).mean())
            back = 2 * error / error.size
            sums[1] += hidden.T @ back
            sums[0] += x.T @ (back @ second.T * (1 - hidden**2))
            element += 1
        # The strategy adds the replicas' gradients up.
        scale = 0.1 / (count if mean else 1)
        first, second = first - scale * sums[0], second - scale * sums[1]
    return np.array(losses), [first, second]


def descent():
    return v1.train.GradientDescentOptimizer(0.1)


def trained(strategy, count, repeats, make=descent, **arguments):
    with strategy.scope():
        opt = make()
        weights = [tf.Variable(w) for w in W]
        infeed, outfeed = Infeed(tf.data.Dataset.from_tensor_slices((X, Y))), Outfeed()

        def one(scale, x, y):
            return tf.tanh(x @ weights[0]) * scale, y

        def two(hidden, y):
            return tf.reduce_mean(tf.square(hidden @ weights[1] - y)), hidden

        def optimizer_function(loss, hidden):
            if isinstance(opt, v1.train.Optimizer):
                return ops.OptimizerFunctionOutput(opt, loss, compute_gradients_kwargs={"var_list": weights})
            return ops.OptimizerFunctionOutput(opt, loss, variables=weights)

        @tf.function(jit_compile=True)
        def program():
            ops.pipeline(
                [one, two], count, repeat_count=repeats, inputs=[1.0], infeed_queue=infeed, outfeed_queue=outfeed,
                optimizer_function=optimizer_function, **arguments,
            )  # fmt: skip

        infeed.initializer  # noqa: B018
        strategy.run(program)
    return outfeed.dequeue(), [w.numpy() for w in weights]


@pytest.mark.parametrize("schedule", list(ops.PipelineSchedule))
@pytest.mark.parametrize("method", list(Method))
def test_a_pipeline_trains_like_accumulation_over_a_loop(strategy, schedule, method):
    (losses, hidden), weights = trained(strategy(), 4, 2, pipeline_schedule=schedule, reduction_method=method)
    wanted, after = expected(4, 2, method is not Method.SUM)
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert hidden.shape == (8, 3, 5)
    for weight, value in zip(weights, after, strict=True):
        np.testing.assert_allclose(weight, value, rtol=1e-5, atol=1e-6)


def test_replicas_of_a_pipeline_take_elements_in_turn(strategy):
    losses, weights = trained(strategy(4), 4, 2, outfeed_loss=True)
    wanted, after = expected(4, 2, False, replicas=2)
    np.testing.assert_allclose(losses, wanted.reshape(8, 2), rtol=1e-5)
    for weight, value in zip(weights, after, strict=True):
        np.testing.assert_allclose(weight, value, rtol=1e-5, atol=1e-6)


def test_what_a_pipeline_enqueues(strategy):
    wanted, after = expected(4, 2, False)
    (hidden,), _ = trained(strategy(), 4, 2, outfeed_mask=[True, False])
    assert hidden.shape == (8, 3, 5)
    losses, _ = trained(strategy(), 4, 2, outfeed_loss=True, accumulate_outfeed=True)
    np.testing.assert_allclose(losses, wanted.reshape(2, 4).sum(1), rtol=1e-5)
    losses, weights = trained(strategy(1), 2, 2, outfeed_loss=True, batch_serialization_iterations=2)
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    np.testing.assert_allclose(weights[0], after[0], rtol=1e-5, atol=1e-6)


def test_a_keras_optimizer_updates_the_weights(strategy):
    losses, weights = trained(strategy(), 4, 2, lambda: keras.optimizers.SGD(0.1), outfeed_loss=True)
    wanted, after = expected(4, 2, False)
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    np.testing.assert_allclose(weights[1], after[1], rtol=1e-5, atol=1e-6)


def test_inference_in_a_session_of_tensorflow_1(strategy):
    strategy(2)
    with tf.Graph().as_default(), v1.Session() as session:
        infeed, outfeed = Infeed(tf.data.Dataset.from_tensor_slices({"x": X, "y": Y})), Outfeed()

        def network(scale):
            stages = [lambda scale, x, y: {"a": x * scale, "b": y}, lambda a, b: {"sum": tf.reduce_sum(a), "b": b}]
            return ops.pipeline(stages, 4, inputs=[scale], infeed_queue=infeed, outfeed_queue=outfeed, repeat_count=2)

        scale = v1.placeholder(tf.float32, [])
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(network, [scale])
        results = outfeed.dequeue()
        session.run(infeed.initializer)
        session.run(run, {scale: 2.0})
        values = session.run(results)
    np.testing.assert_allclose(values["sum"], 2 * X[:8].sum((1, 2)), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(values["b"], Y[:8])


STAGES = [lambda x: x, lambda x: x]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"gradient_accumulation_count": None}, ValueError, "gradient_accumulation_count must be specified"),
        ({"gradient_accumulation_count": -1}, ValueError, "must be >= 0"),
        ({"gradient_accumulation_count": 3}, tf.errors.FailedPreconditionError, "must be a multiple of 2, but it is 3"),
        ({"computational_stages": STAGES[:1]}, ValueError, "at least two computational stages"),
        ({"computational_stages": STAGES[0]}, TypeError, "computational_stages"),
        ({"device_mapping": 1}, TypeError, "device_mapping argument needs to be a list or a tuple"),
        ({"device_mapping": [0]}, ValueError, "Each stage must be mapped to an IPU: 1 mappings != 2 stages"),
        ({"pipeline_schedule": 1}, TypeError, "not a member of the PipelineSchedule enumeration"),
        ({"recomputation_mode": 1}, TypeError, "not a member of the RecomputationMode enumeration"),
        ({"continuous_weight_updates": True}, NotImplementedError, "not supported"),
        ({"outfeed_mask": [True]}, ValueError, "must be provided when outfeed_mask is set"),
        ({"outfeed_loss": True}, ValueError, "must be provided when outfeed_loss is True"),
        ({"accumulate_outfeed": True}, ValueError, "outfeed_queue must be provided when accumulate_outfeed is True"),
        ({"infeed_queue": 1}, TypeError, "infeed_queue"),
        ({"outfeed_queue": 1}, TypeError, "outfeed_queue"),
        ({"batch_serialization_iterations": 2, "reduction_method": Method.MEAN}, ValueError, "only supported when"),
        (
            {"batch_serialization_iterations": 2, "pipeline_schedule": ops.PipelineSchedule.Grouped},
            NotImplementedError,
            "`Sequential` schedule",
        ),
        ({"batch_serialization_iterations": 2, "device_mapping": [0, 1]}, NotImplementedError, "to a single IPU"),
        ({"weight_update_poplar_options": {}}, TypeError, "weight_update_poplar_options"),
        ({"forward_propagation_stages_poplar_options": []}, ValueError, "one entry for each of the 2 stages"),
    ],
)
def test_what_a_pipeline_refuses(arguments, error, message):
    given = {"computational_stages": STAGES, "gradient_accumulation_count": 4, **arguments}
    with pytest.raises(error, match=message):
        ops.pipeline(**given)


def test_a_stage_closes_over_nothing_but_variables(strategy):
    on_ipu = strategy()
    with on_ipu.scope():
        weight = tf.Variable(2.0)

        @tf.function
        def program(closed):
            ops.pipeline([lambda x: x * closed * weight, lambda x: None], 4, inputs=[tf.constant(1.0)])

        with pytest.raises(ValueError, match="Trying to capture the tensor closed:0 which is not a resource"):
            on_ipu.run(program, (tf.constant(3.0),))


def test_captured_gradients_are_accumulated_enqueued_and_given_to_the_optimizer(strategy):
    with strategy().scope():
        weight, out, caught = tf.Variable(2.0), Outfeed(), Outfeed()
        given = []

        class Optimizer(v1.train.GradientDescentOptimizer):
            supports_captured_grads = True

            def apply_gradients(self, pairs, *args, captured_grads=None, **kwargs):
                given.append(sorted(captured_grads))
                return super().apply_gradients(pairs, *args, **kwargs)

        def last(c):
            return ipu.grad_util_ops.capture_upstream_gradients(c, tag="upstream") * weight

        def optimizer_function(loss):
            context = ipu.eager.backprop.GradientCaptureContext()
            return ops.OptimizerFunctionOutput(
                Optimizer(0.1), loss, gradient_capture_context=context, captured_gradient_outfeed=caught
            )

        @tf.function(jit_compile=True)
        def step(c):
            ops.pipeline([lambda c: c * weight, last], 4, inputs=[c], outfeed_queue=out,
                         optimizer_function=optimizer_function)  # fmt: skip

        tf.distribute.get_strategy().run(step, (tf.constant(1.0),))
    # The loss is c * weight ** 2: its gradient is 4, that of the captured place is the weight.
    np.testing.assert_allclose(weight.numpy(), 2 - 0.1 * 4 * 4, rtol=1e-6)
    np.testing.assert_allclose(caught.dequeue()["upstream"][0], [8.0])
    assert given == [["upstream"]]


def test_a_stage_without_operations_has_an_ipu_of_its_own(strategy):
    with strategy(2).scope():
        out = Outfeed()

        @tf.function(jit_compile=True)
        def step(c):
            stages = [lambda c: (c, ipu.internal_ops.get_current_iteration_counter()), lambda c, i: (c, i)]
            ops.pipeline(stages, 4, inputs=[c], outfeed_queue=out)

        tf.distribute.get_strategy().run(step, (tf.constant(1.0),))
    value, micro_batch = out.dequeue()
    assert value.shape == (4,)  # One replica: both IPUs are taken.
    np.testing.assert_array_equal(micro_batch, [0, 1, 2, 3])
