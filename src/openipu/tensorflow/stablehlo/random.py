"""Random numbers: counter-based bits as XLA generates them, and stateful draws from a key."""

from typing import Any

import jax
import numpy as np
from jax import lax

from openipu.tensorflow.stablehlo.evaluate import Frame
from openipu.tensorflow.stablehlo.parsed.graph import Op
from openipu.tensorflow.stablehlo.philox import philox_bits
from openipu.tensorflow.stablehlo.registry import op


@op("stablehlo.rng_bit_generator")
def _rng_bit_generator(op: Op, values: list, frame: Frame) -> list:
    (state,) = values
    kind = op.types[1]
    assert isinstance(kind, jax.ShapeDtypeStruct)
    # The default on the CPU, where programs are captured, is Philox.
    if op.attr("rng_algorithm") in ("PHILOX", "DEFAULT"):
        return list(philox_bits(state, kind))
    state, bits = lax.rng_bit_generator(state, kind.shape, kind.dtype, algorithm=lax.RandomAlgorithm.RNG_THREE_FRY)
    return [state, bits]


@op("stablehlo.rng")
def _rng(op: Op, values: list, frame: Frame) -> list:
    low, high, _ = values
    key = frame.fold_key(op.number)
    kind = op.type
    if op.attr("rng_distribution") == "NORMAL":
        draws = jax.random.normal(key, kind.shape, kind.dtype)
        return [lax.add(lax.mul(draws, _spread(high, draws)), _spread(low, draws))]
    if kind.dtype == np.bool_:
        return [jax.random.bernoulli(key, 0.5, kind.shape)]
    if kind.dtype.kind in "iu":
        return [jax.random.randint(key, kind.shape, low, high, kind.dtype)]
    return [jax.random.uniform(key, kind.shape, kind.dtype, low, high)]


def _spread(scalar: Any, like: jax.Array) -> jax.Array:
    return lax.broadcast_in_dim(scalar, like.shape, ())
