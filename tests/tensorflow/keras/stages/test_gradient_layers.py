"""The layers of `keras.ipu.layers` compute what the wrapped layer computes and record its gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ipu.eager import backprop

from openipu.tensorflow.keras.ipu import layers as ipu_layers

layers = keras.layers


def test_upstream_gradients_are_those_of_the_output():
    dense = layers.Dense(3, name="d")
    wrapped = ipu_layers.CaptureUpstreamGradients(dense)
    x = tf.random.normal((4, 5))
    with backprop.GradientCaptureTape() as tape:
        y = wrapped(x)
        loss = tf.reduce_sum(y**2)
    gradients = tape.gradient(loss, [v.value for v in wrapped.trainable_weights])
    np.testing.assert_allclose(y, dense(x))
    np.testing.assert_allclose(tape.captured_gradients["d_cug"][0], 2 * y, rtol=1e-6)
    np.testing.assert_allclose(gradients[0], tf.matmul(x, 2 * y, transpose_a=True), rtol=1e-5)
    assert [v.path for v in wrapped.weights] == [v.path for v in dense.weights]
    wrapped.trainable = False
    assert not dense.trainable_weights


def test_activation_gradients_are_those_of_its_input():
    dense = layers.Dense(3, activation="tanh", name="d")
    x = tf.random.normal((4, 5))
    dense(x)
    wrapped = ipu_layers.CaptureActivationGradients(dense, tag="here")
    with backprop.GradientCaptureTape() as tape:
        y = wrapped(x)
        loss = tf.reduce_sum(y)
    tape.gradient(loss, [v.value for v in wrapped.trainable_weights])
    np.testing.assert_allclose(y, dense(x))
    np.testing.assert_allclose(tape.captured_gradients["here_activation"][0], 1 - y**2, rtol=1e-5)


def test_layers_without_activation_are_refused():
    with pytest.raises(ValueError, match="Layer d does not use an activation function so is not supported by keras"):
        ipu_layers.CaptureActivationGradients(layers.Dense(3, name="d"))
    assert not ipu_layers.CaptureActivationGradients.layer_is_supported(layers.Dense(3))
    assert ipu_layers.CaptureActivationGradients.layer_is_supported(layers.Dense(3, activation="relu"))
    with pytest.raises(NotImplementedError, match="computed in a loop"):
        ipu_layers.CaptureActivationGradients(layers.LSTM(3))


@pytest.mark.parametrize("wrapper", [ipu_layers.CaptureUpstreamGradients, ipu_layers.CaptureActivationGradients])
def test_models_with_them_are_saved_and_loaded(tmp_path, wrapper):
    model = keras.Sequential([keras.Input((4,)), wrapper(layers.Dense(3, activation="relu"), tag="t")])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    x = np.ones((2, 4), "float32")
    np.testing.assert_array_equal(model(x), loaded(x))
    assert loaded.layers[0].tag == "t"


def test_the_namespace_is_complete():
    from openipu.tensorflow.keras import ipu
    from openipu.tensorflow.keras.ipu import extensions

    names = {n for n in ipu.__all__ if "Pipeline" in n or "Replicated" in n}
    assert len(names) == 8 and all(hasattr(ipu, name) and hasattr(extensions, name) for name in names)
    assert ipu.extensions is extensions and ipu.layers is ipu_layers
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = ipu.nothing
