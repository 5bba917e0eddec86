"""The tutorial model on two IPUs: every replica trains on its own batches."""

from tensorflow import keras
from tensorflow.python import ipu

BATCH = 64
EPOCHS = 6
REPLICAS = 2
STEPS = 7  # of one execution, on every replica


def load(divisor):
    """Some of the digits, which is quick, as float images; their number a multiple of the divisor."""
    (x_train, y_train), (x_test, y_test) = keras.datasets.mnist.load_data()

    def cut(x, y):
        count = len(x) // divisor * divisor
        return (x[:count, ..., None] / 255).astype("float32"), y[:count].astype("int32")

    return cut(x_train[:5000], y_train[:5000]), cut(x_test[:1000], y_test[:1000])


def make_model():
    """Two convolutions and a classifier."""
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


config = ipu.config.IPUConfig()
config.auto_select_ipus = 2
config.configure_ipu_system()

(x_train, y_train), (x_test, y_test) = load(BATCH * STEPS * REPLICAS)

with ipu.ipu_strategy.IPUStrategy().scope():
    model = make_model()
    model.compile(
        loss="sparse_categorical_crossentropy",
        optimizer=keras.optimizers.SGD(0.05),
        metrics=["accuracy"],
        steps_per_execution=STEPS,
    )
    model.fit(x_train, y_train, batch_size=BATCH, epochs=EPOCHS, verbose=2)
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=BATCH, verbose=0)

print(f"test accuracy {accuracy:.3f}")
