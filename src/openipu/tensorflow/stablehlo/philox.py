"""The Philox 4x32-10 generator (Salmon and others, 2011), numbered as XLA numbers its counters."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_MULTIPLIERS = (np.uint32(0xD2511F53), np.uint32(0xCD9E8D57))
_WEYL = (np.uint32(0x9E3779B9), np.uint32(0xBB67AE85))
_ROUNDS = 10


def philox_bits(state: Any, kind: jax.ShapeDtypeStruct) -> tuple[jax.Array, jax.Array]:
    """Random bits of one type, and the state after them.

    Args:
        state: uint64[3], the key and the two halves of a 128-bit counter, or uint64[2] with only a low half.
        kind: shape and an integer dtype of 8 to 64 bits.
    """
    state = jnp.asarray(state)
    key, low = state[0], state[1]
    high = state[2] if state.shape[0] == 3 else jnp.zeros_like(low)
    words = 2 if kind.dtype.itemsize == 8 else 1
    size = math.prod(kind.shape) * words
    blocks = -(-size // 4)
    steps = lax.iota(np.uint64, blocks)
    counter_low = low + steps
    counter_high = high + lax.convert_element_type(counter_low < low, np.uint64)
    lanes = _rounds(_halves(counter_low) + _halves(counter_high), _halves(key))
    bits = jnp.stack(lanes, axis=1).reshape(blocks * 4)[:size]
    if words == 2:
        pairs = lax.convert_element_type(bits.reshape(-1, 2), np.uint64)
        bits = pairs[:, 0] | (pairs[:, 1] << np.uint64(32))
    after_low = low + np.uint64(blocks)
    after_high = high + lax.convert_element_type(after_low < low, np.uint64)
    after = jnp.stack([key, after_low, after_high][: state.shape[0]])
    result = lax.convert_element_type(bits.reshape(kind.shape), np.dtype(f"u{kind.dtype.itemsize}"))
    return after, lax.bitcast_convert_type(result, kind.dtype)


def _halves(x: jax.Array) -> list[jax.Array]:
    low = lax.convert_element_type(x, np.uint32)
    return [low, lax.convert_element_type(x >> np.uint64(32), np.uint32)]


def _wide_product(a: np.uint32, b: jax.Array) -> list[jax.Array]:
    return _halves(lax.convert_element_type(b, np.uint64) * np.uint64(a))


def _rounds(counter: list[jax.Array], key: list[jax.Array]) -> list[jax.Array]:
    for _ in range(_ROUNDS):
        low0, high0 = _wide_product(_MULTIPLIERS[0], counter[0])
        low1, high1 = _wide_product(_MULTIPLIERS[1], counter[2])
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [key[0] + _WEYL[0], key[1] + _WEYL[1]]
    return counter
