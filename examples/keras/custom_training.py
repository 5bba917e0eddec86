"""An own training loop on one IPU: the step is a tf.function, run as one program."""

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu

BATCH = 64
STEPS = 50  # of one program

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()

(x_train, y_train), (x_test, y_test) = keras.datasets.mnist.load_data()
x_train = (x_train.reshape(-1, 784) / 255).astype("float32")
x_test = (x_test.reshape(-1, 784) / 255).astype("float32")

strategy = ipu.ipu_strategy.IPUStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)])
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    measure = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function(jit_compile=True)
    def train(images, labels):
        """STEPS batches, one after the other, without returning to the host."""
        loss = tf.zeros([])
        for step in tf.range(STEPS):
            with tf.GradientTape() as tape:
                loss = measure(labels[step], model(images[step], training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    for epoch in range(5):
        rows = np.random.default_rng(epoch).choice(len(x_train), (STEPS, BATCH), replace=False)
        loss = strategy.run(train, args=(x_train[rows], y_train[rows].astype("int32")))
        print(f"epoch {epoch + 1}: loss {float(loss):.3f}")

accuracy = (np.asarray(model(x_test)).argmax(-1) == y_test).mean()
print(f"test accuracy {accuracy:.3f}")
