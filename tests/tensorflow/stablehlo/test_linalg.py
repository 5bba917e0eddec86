"""Factorisations, linear systems and Fourier transforms."""

import numpy as np
import pytest
import tensorflow as tf

_HALF = np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32)
POSITIVE = _HALF @ np.swapaxes(_HALF, 1, 2) + 2 * np.eye(4, dtype=np.float32)
TALL = np.random.default_rng(1).standard_normal((2, 5, 3)).astype(np.float32)


def test_cholesky(agrees):
    agrees(tf.linalg.cholesky, POSITIVE, tolerance=1e-4)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_triangular_systems(agrees, lower, adjoint):
    agrees(lambda a, b: tf.linalg.triangular_solve(a, b, lower, adjoint), POSITIVE, POSITIVE[:, :, :2], tolerance=1e-3)


def test_inverses_and_solutions(agrees):
    agrees(lambda a: [tf.linalg.inv(a), tf.linalg.solve(a, a[:, :, :1])], POSITIVE, tolerance=1e-3)


def test_qr(agrees):
    agrees(lambda a: tf.linalg.qr(a), TALL, tolerance=1e-3)


def test_symmetric_eigenvalues(agrees):
    def function(a):
        values, vectors = tf.linalg.eigh(a)
        # The sign of an eigenvector is free; what it projects on is not.
        return [values, tf.linalg.matmul(vectors * values[:, None, :], vectors, transpose_b=True)]

    agrees(function, POSITIVE, gradient=False, tolerance=1e-4)


def test_singular_values(agrees):
    agrees(lambda a: tf.linalg.svd(a, compute_uv=False), TALL, gradient=False, tolerance=1e-3)


def test_bands_and_diagonals(agrees):
    def function(a):
        return [
            tf.linalg.band_part(a, 1, 0),
            tf.linalg.diag_part(a),
            tf.linalg.trace(a),
            tf.linalg.set_diag(a, a[:, 0]),
        ]

    agrees(function, POSITIVE)


def test_fourier_transforms(agrees):
    def function(x):
        z = tf.cast(x, tf.complex64)
        parts = [tf.signal.rfft(x), tf.signal.fft(z), tf.signal.ifft(z), tf.signal.fft2d(z)]
        return [tf.signal.irfft(tf.signal.rfft(x)), *(tf.math.real(part) for part in parts), tf.math.imag(parts[0])]

    agrees(function, POSITIVE, gradient=False)
