"""Element by element: arithmetic, comparison, conversion, bits and special functions."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

# The same examples in every run, and no limit on the first, which compiles.
FEW = settings(deadline=None, derandomize=True, max_examples=5)

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, max_side=4)


def _floats(shape, dtype, seed, low=-3.0, high=3.0):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)


def _integers(shape, dtype, seed, low=0):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(max(info.min, -100, low if low else -100), 100, shape).astype(dtype)


def _smooth(x, y):
    parts = [x + y, x - y, x * y, x / (tf.abs(y) + 1), tf.maximum(x, y), tf.minimum(x, y), tf.exp(x), tf.tanh(x)]
    parts += [tf.sigmoid(x), tf.math.log1p(tf.abs(x)), tf.sqrt(tf.abs(y) + 1), tf.math.rsqrt(tf.abs(x) + 1)]
    return [*parts, tf.where(x > y, x, y), tf.clip_by_value(x, -1, 1), tf.square(x), -x, tf.abs(y), tf.sign(x)]


@FEW
@given(SHAPES, st.sampled_from(FLOATS), st.integers(0, 99))
def test_arithmetic_of_floats(agrees, shape, dtype, seed):
    agrees(_smooth, _floats(shape, dtype, seed), _floats(shape, dtype, seed + 100))


@FEW
@given(SHAPES, st.sampled_from(INTEGERS), st.integers(0, 99))
def test_arithmetic_of_integers_wraps_around(agrees, shape, dtype, seed):
    x, y = _integers(shape, dtype, seed), np.maximum(_integers(shape, dtype, seed + 100, low=1), 1).astype(dtype)
    shift = (y % 8).astype(dtype)
    small = dtype in (np.int16, np.uint16, np.uint32)

    def function(x, y, shift):
        parts = [x + y, x - y, x * y, tf.maximum(x, y), tf.minimum(x, y), x < y, x == y, tf.where(x > y, x, y)]
        parts += [tf.bitwise.bitwise_and(x, y), tf.bitwise.bitwise_or(x, y), tf.bitwise.bitwise_xor(x, y)]
        parts += [tf.bitwise.invert(x), tf.bitwise.left_shift(x, shift), tf.bitwise.right_shift(x, shift)]
        return parts if small else [*parts, x // y, tf.math.floormod(x, y)]

    agrees(function, x, y, shift, gradient=False)


@FEW
@given(st.sampled_from([*FLOATS, *INTEGERS, np.bool_]), st.sampled_from([*FLOATS, *INTEGERS, np.bool_]))
def test_conversions(agrees, source, target):
    agrees(lambda x: tf.cast(x, target), np.array([0, 1, 2, 100]).astype(source), gradient=False)


def test_booleans(agrees):
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    agrees(lambda x, y: [x & y, x | y, x ^ y, ~x, tf.reduce_any(x), tf.reduce_all(y), x == y], x, y, gradient=False)


@FEW
@given(SHAPES, st.integers(0, 99))
def test_powers_and_remainders(agrees, shape, seed):
    x, y = _floats(shape, np.float32, seed, 0.2, 3), _floats(shape, np.float32, seed + 1, 0.5, 2)
    agrees(lambda x, y: [x**y, tf.math.floormod(x, y), tf.atan2(x, y), tf.math.xlogy(x, y)], x, y)


def test_powers_of_integers(agrees):
    x, y = np.array([-3, 2, 0, 7, -1, 1], np.int32), np.array([3, 10, 0, 5, 7, 31], np.int32)
    agrees(lambda x, y: x**y, x, y, gradient=False)


SPECIAL = {
    "trigonometry": lambda x: [tf.sin(x), tf.cos(x), tf.tan(x), tf.asin(x), tf.acos(x), tf.atan(x)],
    "hyperbolic": lambda x: [tf.sinh(x), tf.cosh(x), tf.asinh(x), tf.acosh(x + 1.1), tf.atanh(x)],
    "error functions": lambda x: [tf.math.erf(x), tf.math.erfc(x), tf.math.erfinv(x)],
    "gamma": lambda x: [tf.math.lgamma(x), tf.math.digamma(x)],
    "bessel": lambda x: [tf.math.bessel_i0e(x), tf.math.bessel_i1e(x)],
    "logarithms": lambda x: [tf.math.log(x), tf.math.expm1(x), tf.math.softplus(x), tf.math.log_sigmoid(x)],
    "activations": lambda x: [tf.nn.elu(x), tf.nn.selu(x), tf.nn.gelu(x), tf.nn.swish(x), tf.nn.relu6(x)],
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions(agrees, name):
    agrees(SPECIAL[name], _floats((3, 4), np.float32, 0, 0.1, 0.9), tolerance=1e-4)


def test_rounding(agrees):
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.3, -0.7], np.float32)
    agrees(
        lambda x: [tf.round(x), tf.floor(x), tf.math.ceil(x), tf.math.rint(x), tf.math.nextafter(x, 0 * x)],
        x,
        gradient=False,
    )


def test_infinities_and_nans(agrees):
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0], np.float32)
    agrees(
        lambda x: [tf.math.is_finite(x), tf.math.is_nan(x), tf.maximum(x, 1.0), x > 0, x == x, tf.tanh(x)],
        x,
        gradient=False,
    )


def test_complex_numbers(agrees):
    x, y = _floats((3, 4), np.float32, 0), _floats((3, 4), np.float32, 1)

    def function(x, y):
        z = tf.complex(x, y) * tf.constant(2.0 - 1.5j, tf.complex64)
        return [
            tf.math.real(z),
            tf.math.imag(z),
            tf.abs(z),
            tf.math.real(tf.exp(z / 9.0)),
            tf.math.real(tf.math.conj(z)),
        ]

    agrees(function, x, y)


@pytest.mark.parametrize("target", [tf.int32, tf.uint8, tf.float16])
def test_bitcasts_keep_the_bits(agrees, target):
    agrees(lambda x: tf.bitcast(x, target), _floats((2, 3), np.float32, 0), gradient=False)


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int8, np.int64, np.uint64, ml_dtypes.bfloat16, np.float16, np.complex64]
)
@pytest.mark.parametrize("shape", [(), (5,), (30, 40)])
def test_constants_of_every_type(agrees, dtype, shape):
    constant = np.random.default_rng(0).integers(0, 2 if dtype == np.bool_ else 100, shape).astype(dtype)
    agrees(
        lambda x: (tf.constant(constant), tf.fill((20,), tf.constant(constant.reshape(-1)[0]))),
        np.float32(0),
        gradient=False,
    )


def test_infinite_constants_of_every_float(agrees):
    def function(x):
        values = [np.inf, -np.inf, np.nan, 1.0]
        return [tf.constant(values, dtype) for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64)]

    agrees(function, np.float32(0), gradient=False)
