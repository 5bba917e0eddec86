"""The models that are measured, written with whatever Keras is active."""

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np


@attrs.frozen
class Case:
    """One row of the table.

    Attributes:
      name: what the table calls it.
      batch, steps: the size of a batch, and how many make an epoch.
      features: the shape of one example.
      optimizer: its name.
      per_execution: steps of one execution of those peers that can have several.
    """

    name: str
    batch: int
    steps: int
    features: tuple[int, ...]
    optimizer: str
    per_execution: int = 200


CASES = {
    "cnn": Case("tutorial CNN, batch 64, SGD", 64, 200, (28, 28, 1), "sgd"),
    "mlp128": Case("MLP 128, batch 32, SGD", 32, 2000, (784,), "sgd"),
    "mlp256": Case("MLP 256-128, batch 32, RMSprop", 32, 1000, (784,), "rmsprop"),
    "lstm": Case("LSTM 128 over 28x28, batch 64, Adam", 64, 200, (28, 28), "adam"),
    "gru": Case("GRU 128 over 28x28, batch 64, Adam", 64, 200, (28, 28), "adam"),
    "mlp128-1": Case("MLP 128, batch 32, SGD, one step an execution", 32, 1000, (784,), "sgd", per_execution=1),
    "keras-encoder": Case("transformer 4x128, sequence 64, batch 16, AdamW", 16, 40, (64, 128), "adamw"),
    "keras-resnet": Case("ResNet-18, 32x32, batch 16, SGD", 16, 8, (32, 32, 3), "sgd"),
    "keras-resnet-64": Case("ResNet-18, 32x32, batch 64, SGD", 64, 3, (32, 32, 3), "sgd"),
}


def build(key: str, keras: Any, steps_per_execution: int) -> Any:
    """A compiled model."""
    case = CASES[key]
    inputs = keras.layers.Input(case.features)
    model = keras.Model(inputs, _BODIES[key](keras.layers, inputs))
    model.compile(
        optimizer=case.optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"],
        steps_per_execution=min(steps_per_execution, case.per_execution, case.steps),
    )  # fmt: skip
    return model


def data(key: str) -> tuple[np.ndarray, np.ndarray]:
    """Real digits, repeated to one epoch; noise where a model takes something else."""
    from openipu import datasets

    case = CASES[key]
    rows = case.batch * case.steps
    if np.prod(case.features) != 784:
        random = np.random.default_rng(0)
        x = random.standard_normal((rows, *case.features)).astype("float32")
        return x, random.integers(0, 10, rows).astype("int32")
    (x, y), _ = datasets.mnist()
    numbers = np.arange(rows) % len(x)
    return (x[numbers].astype("float32") / 255).reshape(-1, *case.features), y[numbers].astype("int32")


def _cnn(layers: Any, x: Any) -> Any:
    for filters in (32, 64):
        x = layers.MaxPooling2D()(layers.Conv2D(filters, 3, activation="relu")(x))
    return _scores(layers, layers.Dropout(0.5)(layers.Flatten()(x)))


def _mlp(*widths: int) -> Callable[[Any, Any], Any]:
    def body(layers: Any, x: Any) -> Any:
        for width in widths:
            x = layers.Dense(width, activation="relu")(x)
        return _scores(layers, x)

    return body


def _encoder(layers: Any, x: Any, width: int = 128, count: int = 4) -> Any:
    for _ in range(count):
        seen = layers.MultiHeadAttention(4, width // 4)(x, x)
        x = layers.LayerNormalization()(layers.Add()([x, seen]))
        made = layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(x))
        x = layers.LayerNormalization()(layers.Add()([x, made]))
    return _scores(layers, layers.GlobalAveragePooling1D()(x))


def _resnet(layers: Any, x: Any) -> Any:
    def convolution(x: Any, filters: int, size: int, stride: int) -> Any:
        x = layers.Conv2D(filters, size, stride, padding="same", use_bias=False)(x)
        return layers.BatchNormalization()(x)

    x = layers.ReLU()(convolution(x, 64, 3, 1))
    for filters, first in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for stride in (first, 1):
            made = layers.ReLU()(convolution(x, filters, 3, stride))
            made = convolution(made, filters, 3, 1)
            past = x if stride == 1 else convolution(x, filters, 1, stride)
            x = layers.ReLU()(layers.Add()([made, past]))
    return _scores(layers, layers.GlobalAveragePooling2D()(x))


def _scores(layers: Any, x: Any) -> Any:
    return layers.Dense(10, activation="softmax")(x)


_BODIES: dict[str, Callable[[Any, Any], Any]] = {
    "cnn": _cnn,
    "mlp128": _mlp(128),
    "mlp256": _mlp(256, 128),
    "lstm": lambda layers, x: _scores(layers, layers.LSTM(128)(x)),
    "gru": lambda layers, x: _scores(layers, layers.GRU(128)(x)),
    "mlp128-1": _mlp(128),
    "keras-encoder": _encoder,
    "keras-resnet": _resnet,
    "keras-resnet-64": _resnet,
}
