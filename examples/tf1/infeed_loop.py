"""The same with a loop on the device: 100 steps a session.run, fed by a queue, losses read from another."""

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

BATCH = 32
STEPS = 100  # of one program

options = ipu.utils.create_ipu_config()
options = ipu.utils.auto_select_ipus(options, 1)
ipu.utils.configure_ipu_system(options)

(images, labels), _ = tf.keras.datasets.fashion_mnist.load_data()
images = (images / 255).astype("float32")[..., None]
dataset = tf.data.Dataset.from_tensor_slices((images, labels.astype("int32")))
dataset = dataset.shuffle(1000, seed=1).repeat().batch(BATCH, drop_remainder=True)
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset, feed_name="infeed")
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(feed_name="outfeed")


def body(x, y):
    """One step of the loop."""
    convolution = tf.keras.layers.Conv2D(8, 3, padding="same")
    hidden = convolution(convolution(tf.tile(x, [1, 1, 1, 8])))
    logits = tf.keras.layers.Dense(10)(tf.reshape(hidden, [BATCH, 28 * 28 * 8]))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    return outfeed.enqueue(loss), tf.train.AdamOptimizer(0.01).minimize(loss)


def program():
    """The loop."""
    return ipu.loops.repeat(STEPS, body, [], infeed)


with ipu.scopes.ipu_scope("/device:IPU:0"):
    run = ipu.ipu_compiler.compile(program)
losses = outfeed.dequeue()
ipu.utils.move_variable_initialization_to_cpu()

with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(infeed.initializer)
    for number in range(3):
        session.run(run)
        print(f"step {(number + 1) * STEPS}: loss {np.mean(session.run(losses)[-50:]):.3f}")
