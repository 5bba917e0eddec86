"""Run once for each worker of TF_CONFIG: Keras in the scope of IPUMultiWorkerStrategyV1."""

import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = ipu.ipu_multi_worker_strategy.IPUMultiWorkerStrategyV1(resolver)
index = resolver.task_id
x = np.random.default_rng(index).standard_normal((8, 3)).astype("float32")
with strategy.scope():
    keras.utils.set_random_seed(index)
    model = keras.Sequential([keras.Input((3,), batch_size=4), keras.layers.Dense(2)])
    start = model.get_weights()
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(x, x[:, :2], batch_size=4, shuffle=False, verbose=0)
weights = dict(zip(("kernel", "bias"), model.get_weights(), strict=True))
np.savez(pathlib.Path(sys.argv[1]) / f"{index}.npz", x=x, start=start[0], **weights)
