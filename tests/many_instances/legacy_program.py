"""Run once for each worker of TF_CONFIG, as mpirun would: programs in the style of TensorFlow 1 and Keras 2.

Every instance has two replicas, and leaves what it saw in a file.
"""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import pathlib
import sys

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

import popdist
import popdist.tensorflow

BATCH, STEPS, RATE = 4, 6, 0.1
Infeed, Outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue, ipu.ipu_outfeed_queue.IPUOutfeedQueue


def workers():
    """The cluster of TF_CONFIG, with a replica each: they meet at the address of the first."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = ipu.ipu_multi_worker_strategy.IPUMultiWorkerStrategyV1(resolver)
    assert strategy.num_replicas_in_sync == 2
    return strategy


def configure():
    """Two IPUs for each instance, as its launcher says; first those of before are given back."""
    ipu.config.reset_ipu_configuration()
    popdist.synchronize()
    config = ipu.config.IPUConfig()
    popdist.tensorflow.set_ipu_config(config, ipus_per_replica=1)
    config.configure_ipu_system()


def data(replicas):
    """[step, replica of this instance, row, ...], other numbers on every instance."""
    random = np.random.default_rng(10 + popdist.getInstanceIndex())
    x = random.standard_normal((STEPS, replicas, BATCH, 3)).astype("float32")
    return x, x[..., :2] - x[..., 1:]


def keras_2(made, name, strategy, replicas):
    """Keras in the scope of a strategy; every instance begins with other weights, which are not used."""
    x, y = data(replicas)
    with strategy.scope():
        tf.keras.utils.set_random_seed(popdist.getInstanceIndex())
        model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,), batch_size=BATCH)])
        made[f"{name} start"] = model.get_weights()[0]
        model.compile(tf.keras.optimizers.SGD(RATE), "mse", steps_per_execution=STEPS // 2)
        model.set_replication_options("MEAN")
        rows = [v.reshape(-1, v.shape[-1]) for v in (x, y)]
        history = model.fit(*rows, batch_size=BATCH, shuffle=False, verbose=0, epochs=2)
        made[f"{name} losses"] = np.array(history.history["loss"])
        made[f"{name} evaluated"] = np.array(model.evaluate(*rows, batch_size=BATCH, verbose=0))
        # The reduction is that of predictions, too.
        model.set_replication_options("NONE")
        made[f"{name} predicted"] = model.predict(rows[0], batch_size=BATCH, verbose=0)
        made[f"{name} kernel"], made[f"{name} bias"] = model.get_weights()
    made[f"{name} x"] = x


def queues(made, strategy):
    """A loop by hand over an infeed, with losses in an outfeed."""
    x, y = data(2)
    feed = tf.data.Dataset.from_tensor_slices((x.reshape(-1, BATCH, 3), y.reshape(-1, BATCH, 2)))
    with strategy.scope():
        kernel = tf.Variable(tf.random.normal((3, 2), seed=popdist.getInstanceIndex()))
        made["queues start"] = kernel.numpy()
        infeed, outfeed = Infeed(feed), Outfeed()

        def body(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(x @ kernel - y))
            gradient = tf.distribute.get_replica_context().all_reduce("MEAN", tape.gradient(loss, kernel))
            kernel.assign_sub(RATE * gradient)
            outfeed.enqueue(loss)

        @tf.function(jit_compile=True)
        def program():
            ipu.loops.repeat(STEPS // 2, body, [], infeed)

        infeed.initializer  # noqa: B018
        for _ in range(2):
            strategy.run(program)
        made["queues losses"] = outfeed.dequeue().numpy()
        made["queues kernel"] = kernel.numpy()
    made["queues x"] = x


def sessions(made, name, strategy, replicas, in_scope):
    """A graph of TensorFlow 1: variables of a strategy, a compiled loop, an optimizer over all replicas."""
    v1 = tf.compat.v1
    x, y = data(replicas)
    with tf.Graph().as_default():
        v1.set_random_seed(popdist.getInstanceIndex())
        feed = tf.data.Dataset.from_tensor_slices((x.reshape(-1, BATCH, 3), y.reshape(-1, BATCH, 2)))
        infeed, outfeed = Infeed(feed), Outfeed()
        with strategy.scope():
            kernels = [v1.get_variable(f"kernel{i}", (3, 2), use_resource=True) for i in range(4)]

        def body(x, y):
            loss = tf.reduce_mean(tf.square(x @ kernels[0] - y))
            optimizer = v1.train.GradientDescentOptimizer(RATE)
            if in_scope:
                # There, optimizers add up the gradients of all that is in sync.
                goal = loss / strategy.num_replicas_in_sync
            else:
                goal, optimizer = loss, ipu.optimizers.CrossReplicaOptimizer(optimizer)
            return outfeed.enqueue(loss), optimizer.minimize(goal, var_list=kernels[:1])

        def compiled():
            with ipu.scopes.ipu_scope("/device:IPU:0"):
                return ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(STEPS, body, [], infeed))

        if in_scope:
            with strategy.scope():
                loop = strategy.run(compiled)
        else:
            loop = compiled()
        losses = outfeed.dequeue()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(infeed.initializer)
            made[f"{name} sessions start"], *made[f"{name} sessions others"] = session.run(kernels)
            session.run(loop)
            made[f"{name} sessions losses"] = session.run(losses).reshape(STEPS, replicas)
            made[f"{name} sessions kernel"] = session.run(kernels[0])
    made[f"{name} sessions x"] = x


def main():
    made = {}
    strategy = workers()
    keras_2(made, "workers", strategy, 1)
    sessions(made, "workers", strategy, 1, in_scope=True)
    configure()
    strategy = ipu.distributed.popdist_strategy.PopDistStrategy()
    assert strategy.num_replicas_in_sync == 4
    keras_2(made, "popdist", strategy, 2)
    queues(made, strategy)
    sessions(made, "popdist", strategy, 2, in_scope=False)
    np.savez(pathlib.Path(sys.argv[1]) / f"{popdist.getInstanceIndex()}.npz", **made)


main()
