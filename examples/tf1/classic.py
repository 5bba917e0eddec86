"""A classic program of TensorFlow 1: one session.run a step, on one IPU. Run it with `openipu run`."""

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

BATCH = 32
STEPS = 300

options = ipu.utils.create_ipu_config()
options = ipu.utils.auto_select_ipus(options, 1)
ipu.utils.configure_ipu_system(options)

(images, labels), _ = tf.keras.datasets.fashion_mnist.load_data()
images = (images / 255).astype("float32")[..., None]

with tf.device("cpu"):
    x = tf.placeholder(tf.float32, [BATCH, 28, 28, 1])
    y = tf.placeholder(tf.int32, [BATCH])


def train(x, y):
    """One step: the loss before it, and the operation that makes it."""
    convolution = tf.keras.layers.Conv2D(8, 3, padding="same")
    # One layer, used twice: its weights are shared, so it takes as many channels as it gives.
    hidden = convolution(convolution(tf.tile(x, [1, 1, 1, 8])))
    logits = tf.keras.layers.Dense(10)(tf.reshape(hidden, [BATCH, 28 * 28 * 8]))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    return loss, tf.train.AdamOptimizer(0.01).minimize(loss)


with ipu.scopes.ipu_scope("/device:IPU:0"):
    (loss,) = ipu.ipu_compiler.compile(train, [x, y])
ipu.utils.move_variable_initialization_to_cpu()

rng = np.random.default_rng(0)
losses = []
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for step in range(STEPS):
        rows = rng.integers(0, len(images), BATCH)
        losses.append(session.run(loss, {x: images[rows], y: labels[rows]}))
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}: loss {np.mean(losses[-50:]):.3f}")
