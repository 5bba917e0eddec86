"""Values leave with the original's shapes and in its order: replicas, accumulation, pipelines."""

# ruff: noqa: B018  (reading `initializer` is how programs start a queue)

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

v1 = tf.compat.v1
COUNT, REPEATS = 4, 2


def rows():
    return tf.data.Dataset.range(1000, output_type=tf.float32).batch(3, drop_remainder=True)


def stages(weight):
    def first(x):
        return x, weight * tf.reduce_sum(x)

    def second(x, loss):
        return loss * 1.0, tf.reverse(tf.reverse(x, [0]), [0])

    return [first, second]


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_pipelines_leave_one_value_a_micro_batch_or_a_sum_an_update(replicated, replicas):
    strategy = replicated(2 * replicas)
    with strategy.scope():
        queues = {kind: ipu.ipu_outfeed_queue.IPUOutfeedQueue() for kind in ("all", "loss", "sums", "inference")}
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(rows())
        weight = tf.Variable(1.0)
        sums = {"outfeed_loss": True, "accumulate_outfeed": True}
        options = {"all": {}, "loss": {"outfeed_loss": True}, "sums": sums}

        def optimizer_function(loss, x):
            opt = v1.train.GradientDescentOptimizer(0.0)
            return ipu.pipelining_ops.OptimizerFunctionOutput(
                opt, loss, compute_gradients_kwargs={"var_list": [weight]}
            )

        def pipeline(kind):
            training = {} if kind == "inference" else {"optimizer_function": optimizer_function, **options[kind]}

            @tf.function(jit_compile=True)
            def program():
                ipu.pipelining_ops.pipeline(
                    stages(weight), COUNT, repeat_count=REPEATS, infeed_queue=infeed, outfeed_queue=queues[kind],
                    device_mapping=[0, 1], **training,
                )  # fmt: skip

            return program

        for kind, queue in queues.items():
            infeed.initializer
            strategy.run(pipeline(kind))
            steps = COUNT * REPEATS
            elements = np.arange(3.0 * steps * replicas).reshape(steps, replicas, 3)
            elements = elements[:, 0] if replicas == 1 else elements
            losses = elements.sum(-1)
            values = queue.dequeue()
            if kind == "sums":
                np.testing.assert_allclose(values, losses.reshape(REPEATS, COUNT, *losses.shape[1:]).sum(1))
            elif kind == "loss":
                np.testing.assert_allclose(values, losses)
            else:
                np.testing.assert_allclose(values[0], losses)
                np.testing.assert_allclose(values[1], elements)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_accumulating_optimizers_leave_one_value_a_micro_batch(replicated, replicas):
    strategy = replicated(replicas)
    with strategy.scope():
        infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(rows()), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        weight = tf.Variable(1.0)
        optimizer = ipu.optimizers.GradientAccumulationOptimizerV2(v1.train.GradientDescentOptimizer(0.0), 2)

        def body(x):
            loss = weight * tf.reduce_sum(x)
            outfeed.enqueue({"loss": loss, "x": x})
            return optimizer.apply_gradients([(tf.reduce_sum(x), weight)])

        @tf.function(jit_compile=True)
        def program():
            ipu.loops.repeat(4, body, [], infeed)

        infeed.initializer
        strategy.run(program)
    elements = np.arange(12.0 * replicas).reshape(4, replicas, 3)
    elements = elements[:, 0] if replicas == 1 else elements
    values = outfeed.dequeue()
    np.testing.assert_allclose(values["x"], elements)
    np.testing.assert_allclose(values["loss"], elements.sum(-1))
