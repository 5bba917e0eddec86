"""Histograms, images and float8 numbers, against NumPy and ml_dtypes."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ipu import f8_ops, image_ops, math_ops, statistics_ops

TYPES = {f8_ops.Format.F143: ml_dtypes.float8_e4m3fnuz, f8_ops.Format.F152: ml_dtypes.float8_e5m2fnuz}


@pytest.mark.parametrize("absolute", [True, False])
def test_elements_are_counted_between_levels(on_device, rng, absolute):
    x = np.append(rng.normal(size=200), [0.5, -0.5]).astype("float32")
    levels = np.array([-0.5, 0.0, 0.5, 2.0], "float32")
    received = on_device(lambda v: statistics_ops.histogram(v, levels, absolute), x)
    edges = np.concatenate([[-np.inf], levels, [np.inf]])
    np.testing.assert_array_equal(received, np.histogram(np.abs(x) if absolute else x, edges)[0])
    np.testing.assert_array_equal(statistics_ops.histogram_update(received, x, levels, absolute), 2 * received)
    assert received.dtype == np.float32


def test_histograms_are_normalised_and_levels_evenly_spaced():
    np.testing.assert_allclose(statistics_ops.histogram_normalize(tf.constant([1.0, 3.0])), [0.25, 0.75])
    np.testing.assert_allclose(statistics_ops.fixed_width_bins(tf.constant([3.0, 1.0, 2.0]), 5), [1, 1.5, 2, 2.5, 3])
    with pytest.raises(ValueError, match="inputs must be a float16 or float32 tensor of rank 1"):
        statistics_ops.histogram(tf.ones([2, 2]), tf.ones([1]))


@pytest.mark.parametrize(("given", "wanted"), [("uint8", "float16"), ("float16", "float16"), ("float32", "float32")])
def test_images_are_normalised_and_padded_to_four_channels(on_device, rng, given, wanted):
    image = rng.integers(0, 255, (2, 3, 3)).astype(given)
    offsets, scales = np.array([0.1, 0.2, 0.3], "float32"), np.array([1, 2, 4], "float32")
    received = on_device(lambda i: image_ops.normalise_image(i, offsets, scales, 1 / 255), image)
    expected = (image.astype("float64") / 255 - offsets) * scales
    np.testing.assert_allclose(received[..., :3], expected, atol=5e-3)
    assert received.dtype == wanted and not received[..., 3].any()


def test_other_images_are_refused():
    with pytest.raises(TypeError, match=r"uint8, float16 or float32. Received: int32"):
        image_ops.normalise_image(tf.ones([2, 3], tf.int32), [0.0] * 3, [1.0] * 3)
    with pytest.raises(ValueError, match="three channels"):
        image_ops.normalise_image(tf.ones([2, 4]), [0.0] * 3, [1.0] * 3)


@pytest.mark.parametrize("fmt", f8_ops.Format)
def test_every_float8_number_is_decoded_and_encoded_again(on_device, fmt):
    codes = np.arange(256, dtype="uint8")
    metadata = f8_ops.create_metadata(fmt)

    def both(data):
        values = f8_ops.convert_from_f8([data, tf.constant(metadata, tf.uint8)])
        return values, f8_ops.convert_to_f8(values, metadata).data

    values, again = on_device(both, codes)
    np.testing.assert_array_equal(values, codes.view(TYPES[fmt]).astype("float16"))
    np.testing.assert_array_equal(again, codes)


@pytest.mark.parametrize("fmt", f8_ops.Format)
@pytest.mark.parametrize("scale", [-3, 0, 2])
def test_numbers_are_rounded_to_the_nearest_float8(rng, fmt, scale):
    x = (rng.normal(size=500) * np.exp(rng.normal(size=500) * 2)).astype("float16")
    largest = float(ml_dtypes.finfo(TYPES[fmt]).max)
    expected = np.clip(x.astype("float32") * 2.0**-scale, -largest, largest).astype(TYPES[fmt])
    metadata = f8_ops.create_metadata(fmt, scale)
    packed = f8_ops.convert_to_f8(x, metadata)
    np.testing.assert_array_equal(packed.data, expected.view("uint8"))
    back = f8_ops.convert_from_f8(packed, tf.float32)
    np.testing.assert_array_equal(back, expected.astype("float32") * 2.0**scale)


def test_metadata_holds_format_and_scale():
    assert f8_ops.create_metadata(f8_ops.Format.F143, -1) == 0x80 | 63
    assert f8_ops.create_metadata(f8_ops.Format.F152, 5) == 5
    with pytest.raises(ValueError, match="scale=32"):
        f8_ops.create_metadata(f8_ops.Format.F152, 32)


def test_products_and_convolutions_of_float8_numbers(on_device, rng):
    a, b = rng.normal(size=(2, 3, 4)).astype("float16"), rng.normal(size=(4, 5)).astype("float16")
    image, kernel = rng.normal(size=(1, 4, 4, 2)).astype("float16"), rng.normal(size=(2, 2, 2, 3)).astype("float16")
    metadata = f8_ops.create_metadata(f8_ops.Format.F143)

    def rounded(x):
        return f8_ops.convert_from_f8(f8_ops.convert_to_f8(x, metadata), tf.float32)

    def both(a, b, i, k):
        packed = f8_ops.convert_to_f8(a[0], metadata)
        return f8_ops.f8_matmul(packed, b), f8_ops.f8_conv_2d(f8_ops.convert_to_f8(i, metadata), k, 1, "VALID")

    product, convolved = on_device(both, a, b, image, kernel)
    assert product.dtype == convolved.dtype == np.float16
    np.testing.assert_allclose(product, rounded(a[0]) @ b.astype("float32"), rtol=1e-2, atol=1e-2)
    expected = tf.nn.conv2d(rounded(image), kernel.astype("float32"), 1, "VALID")
    np.testing.assert_allclose(convolved, expected, rtol=1e-2, atol=1e-2)


def test_quarter_tensors_are_pairs_of_bytes():
    pair = f8_ops.QuarterTensor(tf.Variable([1, 2], dtype=tf.uint8), tf.Variable(3, dtype=tf.uint8))
    assert len(pair) == 2 and pair.shape == [2] and pair.dtype == tf.uint8
    pair.assign([[3, 4], 0])
    assert [x.tolist() for x in pair.numpy()] == [[3, 4], 0]
    assert pair == f8_ops.QuarterTensor(tf.constant([3, 4], tf.uint8), tf.constant(0, tf.uint8))
    with pytest.raises(TypeError, match=r"data must be of type uint8\. Received: float32"):
        f8_ops.QuarterTensor(tf.ones([2]), tf.constant(0, tf.uint8))


def test_histograms_are_of_floats():
    with pytest.raises(TypeError, match="'inputs' has DataType int32 not in list of allowed values: float16, float32"):
        statistics_ops.histogram(tf.constant([1, 2, 3]), tf.constant([1.0, 2.0]))


@pytest.mark.parametrize("count", [0, -1])
def test_a_sum_of_segments_has_at_least_one(count):
    with pytest.raises(ValueError, match=rf"num_segments must be a positive integer\. Received: num_segments={count}"):
        math_ops.segment_sum(tf.ones((4, 2)), tf.constant([0, 0, 1, 1]), count)
