"""Digits, trained by several instances together: `poprun --num-instances 2 --num-replicas 4 python keras_digits.py`.

Every instance takes its shard of the data; gradients, metrics and history are those of all replicas. With `--backup`
a run that was broken off goes on where it was.
"""

import argparse

import keras
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.distributed.popdist_strategy import PopDistStrategy

import popdist
import popdist.tensorflow

BATCH = 25
STEPS = 10  # of one execution, on every replica


def load(samples, test):
    """This instance's shard of the digits, before it is shuffled and cut into batches."""
    x, y = keras.datasets.mnist.load_data()[1 if test else 0]
    data = tf.data.Dataset.from_tensor_slices(((x[:samples, ..., None] / 255).astype("float32"), y[:samples]))
    data = data.shard(num_shards=popdist.getNumInstances(), index=popdist.getInstanceIndex())
    return (data if test else data.shuffle(samples, seed=1, reshuffle_each_iteration=False)).batch(
        BATCH, drop_remainder=True
    )


def make_model():
    """Two convolutions and a classifier."""
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--epochs", type=int, default=4)
    arguments.add_argument("--backup", help="a folder for the state of the training")
    arguments.add_argument("--save", help="a file for the trained weights, such as digits.weights.h5")
    given = arguments.parse_args()

    config = ipu.config.IPUConfig()
    popdist.tensorflow.set_ipu_config(config)
    config.configure_ipu_system()
    first = popdist.getInstanceIndex() == 0
    callbacks = []
    if given.backup:
        # A folder for each instance: all of them have the same state.
        callbacks.append(keras.callbacks.BackupAndRestore(f"{given.backup}/{popdist.getInstanceIndex()}"))
    keras.utils.set_random_seed(1)
    with PopDistStrategy().scope():
        model = make_model()
        model.compile(
            loss="sparse_categorical_crossentropy",
            optimizer=keras.optimizers.SGD(0.1, momentum=0.9),
            metrics=["accuracy"],
            steps_per_execution=STEPS,
        )
        model.set_replication_options("MEAN")
        model.fit(load(4000, False), epochs=given.epochs, verbose=2 if first else 0, callbacks=callbacks)
        _, accuracy = model.evaluate(load(1000, True), verbose=0)
    if first:
        if given.save:
            model.save_weights(given.save)
        print(f"test accuracy {accuracy:.3f}")


main()
