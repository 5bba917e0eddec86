"""Whole Keras layers, forward and backward, compute what stock TensorFlow computes."""

import keras
import numpy as np
import pytest

L = keras.layers


def _image(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


LAYERS = {
    "dense": (lambda: L.Dense(5, activation="gelu"), (3, 4)),
    "dense with softmax": (lambda: L.Dense(5, activation="softmax"), (3, 4)),
    "einsum dense": (lambda: L.EinsumDense("abc,cd->abd", (None, 6), bias_axes="d"), (2, 3, 4)),
    "convolution 1-D, causal and dilated": (lambda: L.Conv1D(4, 3, padding="causal", dilation_rate=2), (2, 9, 3)),
    "convolution 2-D, strided": (lambda: L.Conv2D(4, 3, strides=2, padding="same", activation="relu"), (2, 7, 8, 3)),
    "convolution 2-D, dilated": (lambda: L.Conv2D(4, 3, dilation_rate=2), (2, 7, 8, 3)),
    "convolution 2-D, grouped": (lambda: L.Conv2D(4, 3, groups=2), (2, 6, 6, 4)),
    "convolution 3-D": (lambda: L.Conv3D(2, 2, strides=2, padding="same"), (1, 5, 4, 5, 2)),
    "depthwise convolution 1-D": (lambda: L.DepthwiseConv1D(3, depth_multiplier=2), (2, 7, 3)),
    "depthwise convolution 2-D": (lambda: L.DepthwiseConv2D(3, strides=2, padding="same"), (2, 7, 7, 3)),
    "separable convolution 2-D": (lambda: L.SeparableConv2D(4, 3, depth_multiplier=2), (2, 6, 6, 3)),
    "transposed convolution 1-D": (lambda: L.Conv1DTranspose(3, 3, strides=2), (2, 5, 4)),
    "transposed convolution 2-D": (lambda: L.Conv2DTranspose(3, 3, strides=2, padding="same"), (2, 4, 5, 2)),
    "max-pooling 1-D": (lambda: L.MaxPooling1D(2), (2, 7, 3)),
    "max-pooling 2-D, overlapping": (lambda: L.MaxPooling2D(3, strides=2, padding="same"), (2, 7, 8, 3)),
    "max-pooling 3-D": (lambda: L.MaxPooling3D(2), (1, 4, 5, 4, 2)),
    "average-pooling 2-D": (lambda: L.AveragePooling2D(3, strides=2, padding="same"), (2, 7, 8, 3)),
    "global pooling": (
        lambda: keras.Sequential([L.GlobalAveragePooling2D(keepdims=True), L.GlobalMaxPooling2D()]),
        (2, 5, 6, 3),
    ),
    "adaptive pooling": (lambda: L.AdaptiveAveragePooling2D(2), (2, 6, 6, 3)),
    "layer normalisation": (lambda: L.LayerNormalization(), (3, 4, 5)),
    "group normalisation": (lambda: L.GroupNormalization(2), (2, 3, 3, 4)),
    "unit normalisation": (lambda: L.UnitNormalization(), (3, 4)),
    "spectral normalisation": (lambda: L.SpectralNormalization(L.Dense(3)), (2, 4)),
    "simple recurrence": (lambda: L.SimpleRNN(3, return_sequences=True), (2, 4, 3)),
    "lstm": (lambda: L.LSTM(3), (2, 4, 3)),
    "gru": (lambda: L.GRU(3, return_sequences=True, go_backwards=True), (2, 4, 3)),
    "bidirectional": (lambda: L.Bidirectional(L.LSTM(2)), (2, 4, 3)),
    "convolutional lstm": (lambda: L.ConvLSTM2D(2, 2), (1, 3, 4, 4, 2)),
    "time distributed": (lambda: L.TimeDistributed(L.Dense(2)), (2, 3, 4)),
    "resizing": (lambda: L.Resizing(5, 7, interpolation="bilinear"), (2, 4, 4, 1)),
    "upsampling": (lambda: L.UpSampling2D(2, interpolation="bilinear"), (2, 3, 3, 2)),
    "padding, cropping, permutation": (
        lambda: keras.Sequential([L.ZeroPadding2D(2), L.Cropping2D(1), L.Permute((2, 1, 3)), L.Flatten()]),
        (2, 3, 4, 2),
    ),
    "activations": (
        lambda: keras.Sequential([L.LeakyReLU(), L.PReLU("ones"), L.ELU(), L.Activation("selu"), L.Activation("silu")]),
        (3, 4),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer_agrees_with_stock_keras(agrees, name):
    keras.utils.set_random_seed(1)
    make, shape = LAYERS[name]
    layer = make()
    x = _image(*shape)
    layer(x)
    agrees(layer, x, variables=[v.value for v in layer.trainable_variables], tolerance=5e-5)


def test_attention_agrees_with_stock_keras(agrees):
    keras.utils.set_random_seed(1)
    layer = L.MultiHeadAttention(2, 3)
    x, y = _image(2, 4, 5), _image(2, 3, 5)
    layer(x, y)
    agrees(lambda a, b: layer(a, b, use_causal_mask=True), x, y, variables=[v.value for v in layer.trainable_variables])


def test_embedding_gradient_is_a_scatter(agrees):
    keras.utils.set_random_seed(1)
    layer = L.Embedding(7, 3)
    words = np.array([[1, 6, 1], [0, 2, 2]], np.int32)
    layer(words)
    agrees(layer, words, variables=[layer.embeddings.value])


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16", "bfloat16"])
def test_half_precision_layers(agrees, dtype):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [L.Conv2D(3, 2, dtype=dtype), L.MaxPooling2D(2, dtype=dtype), L.Flatten(), L.Dense(4, dtype=dtype)]
    )
    x = _image(2, 5, 5, 2)
    model(x)
    agrees(model, x, variables=[v.value for v in model.trainable_variables], tolerance=5e-2)
