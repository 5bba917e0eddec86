"""Group normalisation, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ipu import normalization_ops


def reference(x, groups, axis, strided, epsilon):
    """Every group of channels of every sample with mean 0 and variance 1."""
    x = np.moveaxis(x.astype("float64"), axis, -1)
    channels = x.shape[-1]
    numbers = np.arange(channels) % groups if strided else np.arange(channels) // (channels // groups)
    result = np.empty_like(x)
    for sample in range(len(x)):
        for group in range(groups):
            part = x[sample][..., numbers == group]
            result[sample][..., numbers == group] = (part - part.mean()) / np.sqrt(part.var() + epsilon)
    return np.moveaxis(result, -1, axis)


@pytest.mark.parametrize("strided", [True, False])
@pytest.mark.parametrize("axis", [1, -1])
def test_groups_of_channels_are_normalised(rng, strided, axis):
    x = rng.normal(2, 3, size=(2, 6, 3, 6)).astype("float32")
    received = normalization_ops.group_norm(x, 3, axis, epsilon=1e-3, strided_channel_grouping=strided)
    np.testing.assert_allclose(received, reference(x, 3, axis, strided, 1e-3), atol=1e-4)


def test_layers_and_instances_are_groups_of_all_and_of_one(rng):
    x = rng.normal(size=(2, 5, 4)).astype("float32")
    np.testing.assert_allclose(normalization_ops.layer_norm(x), reference(x, 1, -1, True, 1.53e-5), atol=1e-4)
    np.testing.assert_allclose(normalization_ops.instance_norm(x), reference(x, 4, -1, True, 1.53e-5), atol=1e-4)


def test_variables_scale_and_shift_channels_under_their_scope(rng):
    x = rng.normal(size=(2, 3, 4)).astype("float16")
    initializers = {"gamma": tf.constant_initializer([1, 2, 3, 4]), "beta": tf.constant_initializer([4, 3, 2, 1])}
    with tf.Graph().as_default():
        y = normalization_ops.group_norm(tf.constant(x), param_initializers=initializers)
        names = [v.name for v in tf.compat.v1.trainable_variables()]
        normalization_ops.layer_norm(tf.constant(x), center=False, scope="mine")
        more = [v.name for v in tf.compat.v1.trainable_variables()][2:]
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            received = session.run(y)
    assert names == ["GroupNorm/beta:0", "GroupNorm/gamma:0"] and more == ["mine/gamma:0"]
    assert received.dtype == np.float16
    expected = reference(x, 2, -1, True, 1.53e-5) * [1, 2, 3, 4] + [4, 3, 2, 1]
    np.testing.assert_allclose(received, expected, atol=2e-2)


def test_gradients_are_those_of_the_formula(on_device, rng):
    from openipu.tensorflow.ops.normalization import normalise

    x = rng.normal(size=(2, 4)).astype("float32")
    weight = rng.normal(size=(2, 4)).astype("float32")

    def gradient(x, w):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(w * normalise(x, None, None, 2, 1, 1e-2))
        return tape.gradient(loss, x)

    received = on_device(gradient, x, weight)
    expected = np.empty_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x, "float64")
        step[i] = 1e-5
        up, down = (np.sum(weight * reference(x + s, 2, 1, True, 1e-2)) for s in (step, -step))
        expected[i] = (up - down) / 2e-5
    np.testing.assert_allclose(received, expected, atol=1e-3)


def test_groups_that_do_not_fit_are_refused():
    x = tf.ones([2, 3, 3, 6])
    with pytest.raises(ValueError, match="Invalid groups 7 for 6 channels"):
        normalization_ops.group_norm(x, 7)
    with pytest.raises(ValueError, match="6 channels is not commensurate with 4 groups"):
        normalization_ops.group_norm(x, 4)
    with pytest.raises(ValueError, match="Axis is out of bounds"):
        normalization_ops.group_norm(x, 2, channels_axis=4)
    with pytest.raises(ValueError, match="1 or the last axis"):
        normalization_ops.group_norm(x, 3, channels_axis=2)
