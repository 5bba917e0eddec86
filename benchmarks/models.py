"""The models that are measured, written with whatever Keras is active."""

import attrs
import numpy as np


@attrs.frozen
class Case:
    """One row of the table."""

    name: str
    batch: int
    steps: int
    features: tuple[int, ...]


CASES = {
    "cnn": Case("tutorial CNN, batch 64, SGD", 64, 200, (28, 28, 1)),
    "mlp128": Case("MLP 128, batch 32, SGD", 32, 2000, (784,)),
    "mlp256": Case("MLP 256-128, batch 32, RMSprop", 32, 1000, (784,)),
    "lstm": Case("LSTM 128 over 28x28, batch 64, Adam", 64, 200, (28, 28)),
}


def build(key: str, keras, steps_per_execution: int):
    """A compiled model."""
    layers = keras.layers
    inputs = layers.Input(CASES[key].features)
    bodies = {
        "cnn": lambda: [
            layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.5), layers.Dense(10, activation="softmax"),
        ],
        "mlp128": lambda: [layers.Dense(128, activation="relu"), layers.Dense(10, activation="softmax")],
        "mlp256": lambda: [
            layers.Dense(256, activation="relu"), layers.Dense(128, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ],
        "lstm": lambda: [layers.LSTM(128), layers.Dense(10, activation="softmax")],
    }  # fmt: skip
    optimizers = {"cnn": "sgd", "mlp128": "sgd", "mlp256": "rmsprop", "lstm": "adam"}
    model = keras.Sequential([inputs, *bodies[key]()])
    model.compile(
        optimizer=optimizers[key], loss="sparse_categorical_crossentropy", metrics=["accuracy"],
        steps_per_execution=steps_per_execution,
    )  # fmt: skip
    return model


def data(key: str) -> tuple[np.ndarray, np.ndarray]:
    """Real digits, repeated to one epoch."""
    from openipu import datasets

    case = CASES[key]
    (x, y), _ = datasets.mnist()
    rows = np.arange(case.batch * case.steps) % len(x)
    return (x[rows].astype("float32") / 255).reshape(-1, *case.features), y[rows].astype("int32")
