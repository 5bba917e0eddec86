"""Factorisations, triangular systems and Fourier transforms."""

import jax.numpy as jnp
from jax import lax

from openipu.tensorflow.stablehlo.evaluate import Frame
from openipu.tensorflow.stablehlo.parsed.graph import Op
from openipu.tensorflow.stablehlo.registry import op


@op("stablehlo.cholesky")
def _cholesky(op: Op, values: list, frame: Frame) -> list:
    (a,) = values
    if op.attr("lower", False):
        return [lax.linalg.cholesky(a, symmetrize_input=False)]
    lower = lax.linalg.cholesky(jnp.conj(jnp.swapaxes(a, -1, -2)), symmetrize_input=False)
    return [jnp.conj(jnp.swapaxes(lower, -1, -2))]


@op("stablehlo.triangular_solve")
def _triangular_solve(op: Op, values: list, frame: Frame) -> list:
    a, b = values
    transpose = op.attr("transpose_a")
    return [
        lax.linalg.triangular_solve(
            a,
            b,
            left_side=bool(op.attr("left_side")),
            lower=bool(op.attr("lower")),
            transpose_a=transpose in ("TRANSPOSE", "ADJOINT"),
            conjugate_a=transpose == "ADJOINT",
            unit_diagonal=bool(op.attr("unit_diagonal")),
        )
    ]


@op("stablehlo.fft")
def _fft(op: Op, values: list, frame: Frame) -> list:
    return [lax.fft(values[0], op.attr("fft_type"), op.attr("fft_length"))]
