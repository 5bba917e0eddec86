"""Keras models that are exported, with either Keras; run as a script with Keras 2."""

import sys

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

X = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)


def export(folder):
    """Exports a trained model; stores what it predicts."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    keras = tf.keras
    with ipu.ipu_strategy.IPUStrategy().scope():
        inputs = keras.Input((4,), name="features")
        hidden = keras.layers.BatchNormalization()(keras.layers.Dense(5, activation="relu")(inputs))
        model = keras.Model(inputs, [keras.layers.Dense(3)(hidden), hidden])
        model.compile("sgd", ["mse", "mse"], steps_per_execution=2)
        y = [np.zeros((8, 3), np.float32), np.zeros((8, 5), np.float32)]
        model.fit(np.tile(X, (4, 1)), y, batch_size=2, verbose=0)
        model.export_for_ipu_serving(f"{folder}/saved", batch_size=2, output_names=["scores", "hidden"])
        scores, hidden = model.predict(np.tile(X, (2, 1)), batch_size=2, verbose=0)
    np.savez(f"{folder}/expected.npz", x=X, scores=scores[:2], hidden=hidden[:2])


if __name__ == "__main__":
    export(sys.argv[1])
