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
# Blocks from which on the rounds run in a loop: fewer are made faster than a loop is started.
_LOOP_FROM = 1024


def philox_bits(state: Any, kind: jax.ShapeDtypeStruct) -> tuple[jax.Array, jax.Array]:
    """Random bits of one type, and the state after them.

    Args:
        state: uint64[3], the key and the two halves of a 128-bit counter, or uint64[2] with only a low half, where
            XLA takes the key for the upper one.
        kind: shape and an integer dtype of 8 to 64 bits.
    """
    state = jnp.asarray(state)
    key, low = state[0], state[1]
    high = state[2] if state.shape[0] == 3 else key
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
    if counter[0].size < _LOOP_FROM:
        for _ in range(_ROUNDS):
            counter, key = _round(counter, key)
        return counter

    # Without a loop XLA's CPU backend evaluates all rounds, and what led to the key, anew for each word.
    def two(state: tuple[list, list], _: None) -> tuple[tuple[list, list], None]:
        return _round(*_round(*state)), None

    return lax.scan(two, (counter, key), None, length=_ROUNDS // 2)[0][0]


def _round(counter: list[jax.Array], key: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
    low0, high0 = _wide_product(_MULTIPLIERS[0], counter[0])
    low1, high1 = _wide_product(_MULTIPLIERS[1], counter[2])
    counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
    return counter, [key[0] + _WEYL[0], key[1] + _WEYL[1]]
