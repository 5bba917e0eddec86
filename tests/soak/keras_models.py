"""Random Keras models, with data for them."""

import attrs
import numpy as np

ACTIVATIONS = ["relu", "tanh", "sigmoid", "elu", "selu", "softplus", "softsign", "gelu", "swish", "linear"]


def library():
    """The Keras of this process: 3, or 2 where the environment says so."""
    import tensorflow as tf

    return tf.keras


def legacy():
    """Whether that is Keras 2."""
    return library().__name__.startswith("tf_keras")


@attrs.define
class Recipe:
    """One random model: the same every time it is built from the same seed.

    Attributes:
      seed: what everything is drawn from.
      kind: of input: "vector", "image", "sequence" or "tokens".
      shape: of one example.
      words: what was built, for the report.
    """

    seed: int
    normalised: bool = True
    kind: str = ""
    shape: tuple = ()
    loss: str = ""
    classes: int = 0
    words: list = attrs.field(factory=list)

    def __attrs_post_init__(self):
        import random

        draw = random.Random(self.seed)
        self.kind = draw.choice(["vector", "vector", "image", "image", "sequence", "tokens"])
        self.shape = {
            "vector": lambda: (draw.randint(1, 12),),
            "image": lambda: (draw.randint(5, 12), draw.randint(5, 12), draw.choice([1, 2, 3])),
            "sequence": lambda: (draw.randint(3, 8), draw.randint(1, 6)),
            "tokens": lambda: (draw.randint(3, 8),),
        }[self.kind]()
        self.loss = draw.choice(
            ["mse", "mae", "huber", "log_cosh", "sparse", "sparse", "categorical", "binary", "hinge"]
        )
        self.classes = draw.randint(1, 5) + (self.loss in ("sparse", "categorical"))

    def build(self):
        """The model; call it in a scope or outside of one."""
        import random

        draw = random.Random(self.seed + 1)
        keras = library()
        layers = keras.layers
        self.words = [f"{self.kind}{self.shape}"]
        dtype = "int32" if self.kind == "tokens" else "float32"
        x = inputs = keras.Input(self.shape, dtype=dtype)
        if self.kind == "tokens":
            x = self._call(layers.Embedding(20, draw.randint(2, 6)), x)
        for _ in range(draw.randint(1, 4)):
            x = _STEPS[len(x.shape)](self, draw, layers, x)
        x = self._flat(draw, layers, x)
        if draw.random() < 0.5:
            x = self._flat(draw, layers, self._vector(draw, layers, x))
        x = layers.Dense(self.classes, activation=_OUTPUTS.get(self.loss))(x)
        self.words.append(self.loss)
        return keras.Model(inputs, x)

    def loss_function(self):
        """What is minimised."""
        losses = library().losses
        return {
            "mse": losses.MeanSquaredError, "mae": losses.MeanAbsoluteError, "huber": losses.Huber,
            "log_cosh": losses.LogCosh, "categorical": losses.CategoricalCrossentropy,
            "sparse": lambda: losses.SparseCategoricalCrossentropy(from_logits=True),
            "binary": losses.BinaryCrossentropy, "hinge": losses.Hinge,
        }[self.loss]()  # fmt: skip

    def data(self, rows):
        """Inputs and targets."""
        noise = np.random.default_rng(self.seed)
        x = noise.standard_normal((rows, *self.shape)).astype(np.float32)
        if self.kind == "tokens":
            x = noise.integers(0, 20, (rows, *self.shape)).astype(np.int32)
        if self.loss == "sparse":
            return x, noise.integers(0, self.classes, rows).astype(np.int32)
        if self.loss == "categorical":
            return x, np.eye(self.classes, dtype=np.float32)[noise.integers(0, self.classes, rows)]
        if self.loss == "binary":
            return x, noise.integers(0, 2, (rows, self.classes)).astype(np.float32)
        if self.loss == "hinge":
            return x, (noise.integers(0, 2, (rows, self.classes)) * 2 - 1).astype(np.float32)
        return x, noise.standard_normal((rows, self.classes)).astype(np.float32)

    def _call(self, layer, x):
        self.words.append(type(layer).__name__)
        return layer(x)

    def _norm(self, draw, layers, x):
        if x.shape[-1] == 1:
            # One number less its mean is nothing but rounding, and kinks of what follows are at zero.
            return self._call(layers.Dense(3, draw.choice(ACTIVATIONS)), x)
        choices = [layers.LayerNormalization]
        if self.normalised:
            choices.append(lambda: layers.BatchNormalization(momentum=draw.choice([0.5, 0.9])))
        return self._call(draw.choice(choices)(), x)

    def _vector(self, draw, layers, x):
        width, kind = draw.randint(1, 16), draw.randrange(8)
        if kind == 0:
            return self._norm(draw, layers, x)
        if kind == 1:
            side = self._call(layers.Dense(int(x.shape[-1]), draw.choice(ACTIVATIONS)), x)
            return self._call(draw.choice([layers.Add, layers.Multiply, layers.Average, layers.Maximum])(), [x, side])
        if kind == 2:
            side = self._call(layers.Dense(width, draw.choice(ACTIVATIONS)), x)
            return self._call(layers.Concatenate(), [x, side])
        if kind == 3:
            return self._call(layers.Reshape((int(x.shape[-1]), 1)), x)
        if kind == 4:
            return self._call(draw.choice([layers.Softmax, layers.LeakyReLU, layers.PReLU, layers.ReLU])(), x)
        regular = draw.choice([None, None, None, "l2", "l1"])
        return self._call(
            layers.Dense(width, draw.choice(ACTIVATIONS), use_bias=draw.random() < 0.8, kernel_regularizer=regular), x
        )

    def _sequence(self, draw, layers, x):
        width, kind, long = draw.randint(1, 8), draw.randrange(9), int(x.shape[1])
        if kind == 0:
            return self._norm(draw, layers, x)
        if kind == 1:
            padding = draw.choice(["same", "causal"] if long < 3 else ["same", "valid", "causal"])
            return self._call(
                layers.Conv1D(width, draw.randint(1, 3), padding=padding, activation=draw.choice(ACTIVATIONS)), x
            )
        if kind == 2 and long >= 2:
            pool = draw.choice([layers.MaxPooling1D, layers.AveragePooling1D])
            return self._call(pool(2, padding=draw.choice(["same", "valid"])), x)
        if kind in (3, 4):
            cell = draw.choice([layers.LSTM, layers.GRU, layers.SimpleRNN])
            layer = cell(width, return_sequences=draw.random() < 0.6, go_backwards=draw.random() < 0.2)
            return self._call(
                layers.Bidirectional(cell(width, return_sequences=True)) if draw.random() < 0.2 else layer, x
            )
        if kind == 5:
            attention = layers.MultiHeadAttention(draw.randint(1, 2), draw.randint(1, 4))
            self.words.append("MultiHeadAttention")
            return attention(x, x)
        if kind == 6:
            return self._call(layers.TimeDistributed(layers.Dense(width, draw.choice(ACTIVATIONS))), x)
        if kind == 7:
            return self._call(layers.Permute((2, 1)), x)
        return self._call(layers.Dense(width, draw.choice(ACTIVATIONS)), x)

    def _image(self, draw, layers, x):
        width, kind = draw.randint(1, 8), draw.randrange(11)
        small = min(int(x.shape[1]), int(x.shape[2])) < 3
        padding = "same" if small else draw.choice(["same", "valid"])
        if kind == 0:
            return self._norm(draw, layers, x)
        if kind == 1:
            pool = draw.choice([layers.MaxPooling2D, layers.AveragePooling2D])
            size = draw.choice([2, 3])
            return self._call(pool(size, draw.choice([None, 1, 2]), padding), x)
        if kind == 2:
            return self._call(layers.DepthwiseConv2D(3, padding=padding, depth_multiplier=draw.randint(1, 2)), x)
        if kind == 3:
            return self._call(layers.SeparableConv2D(width, 3, padding=padding, activation=draw.choice(ACTIVATIONS)), x)
        if kind == 4 and int(x.shape[1]) < 16:
            return self._call(layers.Conv2DTranspose(width, 3, draw.choice([1, 2]), padding), x)
        if kind == 5 and int(x.shape[1]) < 12:
            kind = draw.choice(["nearest", "bilinear"])
            # The gradient of Keras 2's nearest one has no form that XLA compiles: refused, as by the original.
            return self._call(layers.UpSampling2D(2, interpolation="bilinear" if legacy() else kind), x)
        if kind == 6:
            side = self._call(
                layers.Conv2D(int(x.shape[-1]), 3, padding="same", activation=draw.choice(ACTIVATIONS)), x
            )
            return self._call(layers.Add(), [x, side])
        if kind == 7:
            return self._call(layers.ZeroPadding2D(draw.randint(1, 2)), x)
        strides, dilation = draw.choice([(1, 1), (1, 1), (2, 1), ((1, 2), 1), (1, 2)])
        if dilation > 1 or small:
            padding = "same"
        return self._call(
            layers.Conv2D(width, draw.choice([1, 2, 3, (1, 3)]), strides, padding, dilation_rate=dilation,
                          activation=draw.choice(ACTIVATIONS), use_bias=draw.random() < 0.8),
            x,
        )  # fmt: skip

    def _flat(self, draw, layers, x):
        if len(x.shape) == 4:
            kind = draw.choice([layers.GlobalAveragePooling2D, layers.GlobalMaxPooling2D, layers.Flatten])
            return self._call(kind(), x)
        if len(x.shape) == 3:
            if draw.random() < 0.3:
                return self._call(draw.choice([layers.LSTM, layers.GRU])(draw.randint(2, 6)), x)
            kind = draw.choice([layers.GlobalAveragePooling1D, layers.GlobalMaxPooling1D, layers.Flatten])
            return self._call(kind(), x)
        return x


_STEPS = {2: Recipe._vector, 3: Recipe._sequence, 4: Recipe._image}
_OUTPUTS = {"categorical": "softmax", "binary": "sigmoid"}


def optimizer(draw):
    """A random optimizer as a function that makes it; a large epsilon, so that rounding does not become steps."""
    optimizers = library().optimizers
    rate = draw.choice([0.003, 0.01])
    kinds = {
        "SGD": lambda: optimizers.SGD(rate),
        "momentum": lambda: optimizers.SGD(rate, momentum=0.9, nesterov=draw_nesterov),
        "Adam": lambda: optimizers.Adam(rate, epsilon=1e-3, amsgrad=draw_nesterov),
        "AdamW": lambda: optimizers.AdamW(rate, weight_decay=0.01, epsilon=1e-3),
        "RMSprop": lambda: optimizers.RMSprop(rate, momentum=0.5, epsilon=1e-3, centered=draw_nesterov),
        "Adagrad": lambda: optimizers.Adagrad(rate, epsilon=1e-3),
        "Adamax": lambda: optimizers.Adamax(rate, epsilon=1e-3),
        "Nadam": lambda: optimizers.Nadam(rate, epsilon=1e-3),
        "Ftrl": lambda: optimizers.Ftrl(rate),
        "clipped": lambda: optimizers.SGD(rate, clipnorm=0.5),
        "scheduled": lambda: optimizers.SGD(optimizers.schedules.ExponentialDecay(rate, 3, 0.5)),
    }
    name, draw_nesterov = draw.choice(sorted(kinds)), draw.random() < 0.5
    return name, kinds[name]
