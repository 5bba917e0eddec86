"""Run by poprun: trains Keras models on four replicas in all, and leaves what it saw in a file for each instance."""

import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

import popdist
import popdist.tensorflow

REPLICAS, BATCH, STEPS = 4, 4, 60


def configure(ipus_per_replica=1):
    config = ipu.config.IPUConfig()
    config.floating_point_behaviour.esr = ipu.config.StochasticRoundingBehaviour.OFF
    popdist.tensorflow.set_ipu_config(config, configure_device=ipus_per_replica == 1)
    if ipus_per_replica > 1:
        config.auto_select_ipus = ipus_per_replica * popdist.getNumLocalReplicas()
    config.configure_ipu_system()
    ipu.utils.reset_ipu_seed(7)


def data():
    """Batches are dealt to the replicas of all instances as one process would deal them to its own."""
    random = np.random.default_rng(3)
    x = random.standard_normal((STEPS, REPLICAS, BATCH, 6, 6, 2)).astype("float32")
    y = x[..., 0, 0, :].argmax(-1) + (x[..., 1, 1, 0] > 1)
    first, count = popdist.getReplicaIndexOffset(), popdist.getNumLocalReplicas()
    own = slice(first, first + count)
    return x[:, own].reshape(-1, 6, 6, 2), y[:, own].reshape(-1)


def classifier():
    # Other initial values in every instance: the strategy makes them those of the first.
    keras.utils.set_random_seed(1 + popdist.getInstanceIndex())
    source = keras.Input((6, 6, 2), batch_size=BATCH)
    x = keras.layers.Conv2D(4, 3, use_bias=False, name="convolution")(source)
    x = keras.layers.BatchNormalization(name="normalisation")(x)
    x = keras.layers.Flatten(name="flat")(keras.layers.ReLU(name="rectified")(x))
    x = keras.layers.Dropout(0.1, name="dropped")(x)
    return keras.Model(source, keras.layers.Dense(3, activation="softmax", name="classes")(x))


def train(made, name, accumulation=1, staged=False):
    x, y = data()
    model = classifier()
    optimizer = keras.optimizers.SGD(0.02, momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"], steps_per_execution=20)
    model.set_replication_options("MEAN")
    if staged:
        stages = model.get_pipeline_stage_assignment()
        for assignment in stages:
            assignment.pipeline_stage = int(assignment.layer.name in ("flat", "dropped", "classes"))
        model.set_pipeline_stage_assignment(stages)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4, device_mapping=[0, 1])
    elif accumulation > 1:
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=accumulation)
    seen = []
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: seen.append(logs["loss"]))
    history = model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[callback], epochs=1)
    made[f"losses {name}"] = np.array([*seen, *history.history["loss"], *history.history["accuracy"]])
    made |= {f"weights {name} {i}": value for i, value in enumerate(model.get_weights())}
    if name == "plain":
        made["evaluated"] = np.array(model.evaluate(x, y, batch_size=BATCH, verbose=0))
        made["predicted"] = model.predict(x, batch_size=BATCH, verbose=0).reshape(
            STEPS, popdist.getNumLocalReplicas(), BATCH, 3
        )


def custom_loop(made, strategy):
    """Indices and reductions of a function that every instance runs."""

    @tf.function
    def step():
        index = ipu.ops.replication_ops.replication_index()
        total = ipu.ops.cross_replica_ops.cross_replica_sum(tf.cast(index, tf.float32))
        return total, tf.distribute.get_replica_context().all_reduce("SUM", tf.cast(index, tf.float32))

    made["indices"] = np.array([float(r) for r in strategy.run(step)])
    index = popdist.getInstanceIndex()
    made["reduced on the host"] = np.array(
        [
            float(strategy.reduce("SUM", tf.constant(float(index + 1)), axis=None)),
            float(ipu.distributed.allreduce(tf.constant(index + 1.0), tf.distribute.ReduceOp.MEAN)),
            float(ipu.distributed.broadcast(tf.constant(index + 5.0))),
        ]
    )
    made["gathered on the host"] = ipu.distributed.allgather(tf.constant([index, 7])).numpy()

    @tf.function
    def graph():
        a = ipu.distributed.allreduce(tf.constant(1.0, name="a"), tf.distribute.ReduceOp.SUM)
        return a + ipu.distributed.allreduce(tf.constant(2.0, name="b"), tf.distribute.ReduceOp.SUM)

    made["reduced in a graph"] = graph().numpy()


def resumed(made, folder):
    """Training that is broken off, with a backup of the first instance only, beside training that is not."""
    x, y = (np.random.default_rng(8 + popdist.getInstanceIndex()).standard_normal((24, n)).astype("f4") for n in (3, 2))

    def fit(epochs, start, callbacks):
        model = keras.Sequential([keras.Input((3,), batch_size=BATCH), keras.layers.Dense(2)])
        model.set_weights([np.full((3, 2), start), np.zeros(2)])
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
        model.fit(x, y, BATCH, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks)
        return model.get_weights()[0]

    first = popdist.getInstanceIndex() == 0
    backup = [keras.callbacks.BackupAndRestore(folder / "backup", delete_checkpoint=False)] if first else []
    made["unbroken"] = fit(3, 1.0, [])
    fit(1, 1.0, backup)
    made["resumed"] = fit(3, 5.0 + popdist.getInstanceIndex(), backup)


def main():
    made = {}
    configure()
    strategy = ipu.distributed.popdist_strategy.PopDistStrategy()
    assert not isinstance(strategy, ipu.ipu_strategy.IPUStrategy)
    assert strategy.num_replicas_in_sync == popdist.getNumTotalReplicas() == REPLICAS
    with strategy.scope():
        variable = tf.Variable(float(popdist.getInstanceIndex()))
        made["variable"] = variable.numpy()
        train(made, "plain")
        train(made, "accumulated", accumulation=2)
        custom_loop(made, strategy)
        if popdist.getNumInstances() == 2:
            resumed(made, pathlib.Path(sys.argv[1]))
        if popdist.getNumInstances() > 1:
            try:
                model = classifier()
                model.compile("sgd", "sparse_categorical_crossentropy")
                x, y = data()
                model.fit(x[: 12 * (1 + popdist.getInstanceIndex())], y[: 12 * (1 + popdist.getInstanceIndex())], BATCH)
            except RuntimeError as error:
                made["different steps"] = np.array(str(error))
    configure(ipus_per_replica=2)
    with ipu.distributed.popdist_strategy.PopDistStrategy().scope():
        train(made, "pipelined", staged=True)
    np.savez(pathlib.Path(sys.argv[1]) / f"{popdist.getInstanceIndex()}.npz", **made)


main()
