"""Fifty steps on a virtual IPU leave the losses and weights that fifty steps of stock Keras leave."""

import keras
import numpy as np
import pytest
from keras import layers

from openipu import datasets

STEPS, BATCH = 50, 8
ACTIVATIONS = [
    "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "sigmoid", "hard_sigmoid",
    "log_sigmoid", "tanh", "hard_tanh", "tanh_shrink", "softplus", "softsign", "softmax", "log_softmax",
    "exponential", "linear",
]  # fmt: skip


def noise(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal((STEPS * BATCH, *shape)).astype(np.float32)


def labels(classes, *shape):
    return np.random.default_rng(1).integers(0, classes, (STEPS * BATCH, *shape)).astype(np.int32)


def tokens(*shape, vocabulary=50):
    return np.random.default_rng(2).integers(1, vocabulary, (STEPS * BATCH, *shape)).astype(np.int32)


def digits():
    (x, y), _ = datasets.mnist()
    return (x[: STEPS * BATCH, ::2, ::2, None] / 255).astype(np.float32), y[: STEPS * BATCH].astype(np.int32)


def classifier(*body, shape, classes=5):
    def build():
        return keras.Sequential([layers.Input(shape), *[layer() for layer in body], layers.Dense(classes)])

    return build


def by_class(optimizer, **more):
    def arguments():
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return {"optimizer": optimizer(), "loss": loss, "metrics": ["accuracy"], **more}

    return arguments


def by_distance(optimizer, **more):
    return lambda: {"optimizer": optimizer(), "loss": "mse", "metrics": ["mae"], **more}


def sgd():
    return keras.optimizers.SGD(0.05)


def momentum():
    return keras.optimizers.SGD(0.02, momentum=0.9)


def adam():
    # A large epsilon: gradients that are zero but for rounding must not become steps of full size.
    return keras.optimizers.Adam(0.01, epsilon=1e-3)


def test_mlp_with_every_activation(side_by_side):
    def build():
        x = inputs = layers.Input((10,))
        for _ in range(2):
            # Small weights: the exponential must not explode.
            small = keras.initializers.VarianceScaling(0.1)
            x = layers.Concatenate()([layers.Dense(3, name, kernel_initializer=small)(x) for name in ACTIVATIONS])
            x = layers.Dense(8)(x)
        return keras.Model(inputs, layers.Dense(5)(x))

    side_by_side(build, (noise(10), labels(5)), by_class(lambda: keras.optimizers.SGD(0.01)))


def test_cnn_with_pooling(side_by_side):
    body = [
        lambda: layers.Conv2D(6, 3, activation="relu"),
        lambda: layers.MaxPooling2D(),
        lambda: layers.Conv2D(8, 3, activation="relu", padding="same", strides=2),
        lambda: layers.AveragePooling2D(2),
        lambda: layers.Flatten(),
    ]
    side_by_side(classifier(*body, shape=(14, 14, 1), classes=10), digits(), by_class(sgd))


def test_depthwise_separable_and_dilated_convolutions(side_by_side):
    body = [
        lambda: layers.DepthwiseConv2D(3, depth_multiplier=2, activation="tanh"),
        lambda: layers.SeparableConv2D(6, 3, padding="same", activation="tanh"),
        lambda: layers.Conv2D(6, 3, dilation_rate=2, activation="tanh"),
        lambda: layers.Conv2D(6, 3, groups=2, padding="same", activation="tanh"),
        lambda: layers.GlobalAveragePooling2D(),
    ]
    side_by_side(classifier(*body, shape=(10, 10, 2)), (noise(10, 10, 2), labels(5)), by_class(momentum))


def test_autoencoder_of_transposed_convolutions(side_by_side):
    def build():
        return keras.Sequential([
            layers.Input((8, 8, 1)),
            layers.Conv2D(4, 3, strides=2, padding="same", activation="elu"),
            layers.Conv2D(6, 3, strides=2, padding="same", activation="elu"),
            layers.Conv2DTranspose(4, 3, strides=2, padding="same", activation="elu"),
            layers.UpSampling2D(2),
            layers.Conv2DTranspose(1, 3, padding="same"),
        ])  # fmt: skip

    x = noise(8, 8, 1) + 1
    side_by_side(build, (x, x), by_distance(adam))


def test_batch_normalisation_and_its_moving_statistics(side_by_side):
    body = [
        lambda: layers.Conv2D(6, 3, use_bias=False),
        lambda: layers.BatchNormalization(momentum=0.9),
        lambda: layers.Activation("tanh"),
        lambda: layers.Flatten(),
        # No bias: its gradient would be rounding noise only.
        lambda: layers.Dense(8, use_bias=False),
        lambda: layers.BatchNormalization(),
    ]
    stock, model = side_by_side(classifier(*body, shape=(6, 6, 1)), (noise(6, 6, 1), labels(5)), by_class(sgd))
    x, y = noise(6, 6, 1, seed=3), labels(5)
    np.testing.assert_allclose(
        model.evaluate(x, y, batch_size=BATCH, verbose=0), stock.evaluate(x, y, batch_size=BATCH, verbose=0), rtol=1e-5
    )


def test_layer_group_rms_and_unit_normalisation(side_by_side):
    body = [
        lambda: layers.Conv2D(8, 3, activation="tanh"),
        lambda: layers.GroupNormalization(4),
        lambda: layers.Conv2D(8, 3),
        lambda: layers.LayerNormalization(),
        lambda: layers.Flatten(),
        lambda: layers.Dense(8),
        lambda: layers.RMSNormalization(),
        lambda: layers.UnitNormalization(),
    ]
    compile_with = by_class(lambda: keras.optimizers.AdamW(0.01, epsilon=1e-3, weight_decay=0.02))
    side_by_side(classifier(*body, shape=(8, 8, 2)), (noise(8, 8, 2), labels(5)), compile_with)


def test_text_classifier_of_embeddings(side_by_side):
    body = [lambda: layers.Embedding(50, 12), lambda: layers.GlobalAveragePooling1D(), lambda: layers.Dense(8, "relu")]
    side_by_side(classifier(*body, shape=(12,)), (tokens(12), labels(5)), by_class(adam))


def test_text_classifier_with_masked_padding(side_by_side):
    body = [lambda: layers.Embedding(50, 8, mask_zero=True), lambda: layers.LSTM(6)]
    x = np.where(np.arange(10) < np.random.default_rng(5).integers(3, 10, (STEPS * BATCH, 1)), tokens(10), 0)
    side_by_side(classifier(*body, shape=(10,)), (x, labels(5)), by_class(sgd))


@pytest.mark.parametrize("cell", ["LSTM", "GRU", "SimpleRNN"])
def test_recurrent_layers(cell, side_by_side):
    layer = getattr(layers, cell)
    body = [lambda: layer(8, return_sequences=True), lambda: layer(6)]
    side_by_side(classifier(*body, shape=(7, 4)), (noise(7, 4), labels(5)), by_class(adam))


def test_bidirectional_and_time_distributed(side_by_side):
    body = [
        lambda: layers.TimeDistributed(layers.Dense(6, activation="tanh")),
        lambda: layers.Bidirectional(layers.GRU(5, return_sequences=True)),
        lambda: layers.Bidirectional(layers.LSTM(4), merge_mode="sum"),
    ]
    side_by_side(classifier(*body, shape=(6, 4)), (noise(6, 4), labels(5)), by_class(momentum))


def test_convolutional_lstm(side_by_side):
    body = [lambda: layers.ConvLSTM2D(4, 3), lambda: layers.Flatten()]
    side_by_side(classifier(*body, shape=(3, 6, 6, 1)), (noise(3, 6, 6, 1), labels(5)), by_class(sgd))


def test_small_transformer(side_by_side):
    def build():
        ids = layers.Input((8,), dtype="int32")
        x = layers.Embedding(50, 16)(ids)
        # No biases: softmax makes the gradient of the key's rounding noise only, which Adam would amplify.
        attended = layers.MultiHeadAttention(2, 8, use_bias=False)(x, x, use_causal_mask=True)
        x = layers.LayerNormalization()(x + attended)
        x = layers.LayerNormalization()(x + layers.Dense(16)(layers.Dense(32, activation="gelu")(x)))
        return keras.Model(ids, layers.Dense(50)(x))

    side_by_side(build, (tokens(8), tokens(8)), by_class(adam))


def test_two_inputs_two_outputs_two_losses(side_by_side):
    def build():
        a, b = layers.Input((6,), name="a"), layers.Input((4,), name="b")
        joined = layers.Concatenate()([layers.Dense(8, activation="tanh")(a), layers.Dense(8, activation="tanh")(b)])
        outputs = {"kind": layers.Dense(3, name="kind")(joined), "size": layers.Dense(1, name="size")(joined)}
        return keras.Model({"a": a, "b": b}, outputs)

    def compile_with():
        crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return {
            "optimizer": keras.optimizers.Nadam(0.01, epsilon=1e-3),
            "loss": {"kind": crossentropy, "size": "huber"},
            "loss_weights": {"kind": 1.0, "size": 0.3},
            "metrics": {"kind": ["accuracy"], "size": ["mae", "mse"]},
        }

    x = {"a": noise(6), "b": noise(4, seed=4)}
    side_by_side(build, (x, {"kind": labels(3), "size": noise(1, seed=5)}), compile_with)


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = layers.Dense(10, activation="tanh")
        self.blocks = [layers.Dense(10, activation="tanh") for _ in range(2)]
        self.norm = layers.BatchNormalization()
        self.last = layers.Dense(5)

    def call(self, x, training=False):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(self.norm(x, training=training))


def test_subclassed_model_that_is_built_by_its_data(side_by_side):
    side_by_side(Subclassed, (noise(6), labels(5)), by_class(momentum))


def test_residual_network(side_by_side):
    def build():
        image = layers.Input((8, 8, 2))
        x = layers.Conv2D(6, 3, padding="same")(image)
        for _ in range(2):
            y = layers.Conv2D(6, 3, padding="same")(layers.Activation("swish")(layers.BatchNormalization()(x)))
            x = layers.Add()([x, y])
        return keras.Model(image, layers.Dense(5)(layers.GlobalAveragePooling2D()(x)))

    # Rounding grows through residual blocks, on some processors to a little more than elsewhere.
    side_by_side(build, (noise(8, 8, 2), labels(5)), by_class(momentum), tolerance=2e-5)


def test_one_dimensional_convolutions(side_by_side):
    body = [
        lambda: layers.Conv1D(6, 3, padding="causal", activation="tanh"),
        lambda: layers.SeparableConv1D(6, 3, activation="tanh"),
        lambda: layers.Conv1DTranspose(5, 3, strides=2),
        lambda: layers.AveragePooling1D(2),
        lambda: layers.ZeroPadding1D(1),
        lambda: layers.Cropping1D(2),
        lambda: layers.Flatten(),
    ]
    side_by_side(classifier(*body, shape=(12, 3)), (noise(12, 3), labels(5)), by_class(sgd))


def test_three_dimensional_convolutions(side_by_side):
    body = [
        lambda: layers.Conv3D(4, 3, activation="tanh", padding="same"),
        lambda: layers.AveragePooling3D(2),
        lambda: layers.Conv3DTranspose(3, 2, strides=2),
        lambda: layers.GlobalAveragePooling3D(),
    ]
    side_by_side(classifier(*body, shape=(4, 6, 6, 1)), (noise(4, 6, 6, 1), labels(5)), by_class(sgd))


def test_unet(side_by_side):
    def build():
        image = layers.Input((8, 8, 1))
        a = layers.Conv2D(4, 3, padding="same", activation="tanh")(image)
        b = layers.Conv2D(6, 3, padding="same", activation="tanh")(layers.AveragePooling2D(2)(a))
        c = layers.Concatenate()([a, layers.UpSampling2D(interpolation="bilinear")(b)])
        return keras.Model(image, layers.Conv2D(1, 1)(c))

    side_by_side(build, (noise(8, 8, 1), noise(8, 8, 1, seed=6)), by_distance(sgd))


def test_mixer_of_permute_reshape_dot_and_einsum(side_by_side):
    def build():
        x = inputs = layers.Input((6, 4))
        x = x + layers.Permute((2, 1))(layers.Dense(6, activation="gelu")(layers.Permute((2, 1))(x)))
        x = layers.EinsumDense("abc,cd->abd", output_shape=(None, 8), bias_axes="d")(x)
        gate = layers.Dot(axes=2, normalize=True)([x, x])
        x = layers.Reshape((36,))(gate)
        return keras.Model(inputs, layers.Dense(5)(layers.PReLU()(layers.Dense(8)(x))))

    side_by_side(build, (noise(6, 4), labels(5)), by_class(sgd))
