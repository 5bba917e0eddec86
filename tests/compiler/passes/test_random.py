"""Random bits are the same bits, made in less time."""

import jax.numpy as jnp
import pytest
from jax import lax

from .checking import check

_ALGORITHMS = lax.RandomAlgorithm


@pytest.mark.parametrize("counter", [(0, 0), (0xFFFFFFFF, 7), (0xFFFFFFF0, 0xFFFFFFFF)])
@pytest.mark.parametrize("shape", [(4096,), (67, 63), (2, 3, 1001)])
def test_bits_and_next_key_are_exactly_the_same(counter, shape):
    key = jnp.asarray([11, 0xFFFFFFFF, *counter], jnp.uint32)
    left = check(lambda key: lax.rng_bit_generator(key, shape), key, tolerance=0)
    assert "rng_bit_generator" not in left


@pytest.mark.parametrize(
    "draw",
    [
        lambda key: lax.rng_bit_generator(key, (5000,), algorithm=_ALGORITHMS.RNG_THREE_FRY),
        lambda key: lax.rng_bit_generator(key, (5000,), jnp.uint8),
        lambda key: lax.rng_bit_generator(key, (7,)),
    ],
    ids=["another generator", "bytes", "few"],
)
def test_what_it_does_not_pay_for_is_left_alone(draw):
    key = jnp.arange(4, dtype=jnp.uint32)
    assert "rng_bit_generator" in check(draw, key, tolerance=0)
