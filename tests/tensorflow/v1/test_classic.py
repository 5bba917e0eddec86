"""The classic program: one convolution used twice, trained as by stock TensorFlow 1, step by step or in a loop."""

import keras
import numpy as np
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

from openipu import datasets

BATCH, STEPS = 32, 12


def data():
    (images, labels), _ = datasets.fashion_mnist()
    rows = np.random.default_rng(0).integers(0, len(images), STEPS * BATCH)
    x = (images[rows] / 255).astype(np.float32).reshape(STEPS, BATCH, 28, 28, 1)
    return x, labels[rows].astype(np.int32).reshape(STEPS, BATCH)


def train(x, y):
    convolution = keras.layers.Conv2D(8, 3, padding="same", kernel_initializer=keras.initializers.GlorotUniform(1))
    dense = keras.layers.Dense(10, kernel_initializer=keras.initializers.GlorotUniform(2))
    hidden = convolution(convolution(tf.tile(x, [1, 1, 1, 8])))
    logits = dense(tf.reshape(hidden, [BATCH, 28 * 28 * 8]))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    return loss, tf.train.AdamOptimizer(0.01).minimize(loss)


def losses_of(run, x, y, inputs):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return [session.run(run, dict(zip(inputs, pair, strict=True)))[0] for pair in zip(x, y, strict=True)]


def test_steps_and_loops_train_like_stock(graph, on_ipu):
    x, y = data()
    with tf.Graph().as_default():
        inputs = tf.placeholder(tf.float32, x.shape[1:]), tf.placeholder(tf.int32, y.shape[1:])
        expected = losses_of(train(*inputs), x, y, inputs)
    with tf.Graph().as_default():
        inputs = tf.placeholder(tf.float32, x.shape[1:]), tf.placeholder(tf.int32, y.shape[1:])
        np.testing.assert_allclose(losses_of(on_ipu(train, inputs), x, y, inputs), expected, rtol=2e-3)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf2.data.Dataset.from_tensor_slices((x, y)))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(x, y):
        loss, update = train(x, y)
        return outfeed.enqueue(loss), update

    loop = on_ipu(lambda: ipu.loops.repeat(STEPS, body, [], infeed))
    losses = outfeed.dequeue()
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), infeed.initializer])
        session.run(loop)
        np.testing.assert_allclose(session.run(losses), expected, rtol=2e-3)
    assert expected[-1] < expected[0]
