"""Random bits of the Philox generator, bit for bit XLA's, in a loop over its rounds instead of one long expression.

XLA's CPU backend evaluates the ten rounds anew for each of the four words of a block, and with them everything that led
to the key. Rounds two at a time in a loop keep the words in memory between them: a quarter of the time.
"""

import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn

from openipu.compiler.passes.layout import Stored, identity

if TYPE_CHECKING:
    from openipu.compiler.passes.rewriter import Rewriter

# The constants of Philox 4x32 with 10 rounds (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", 2011).
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (np.uint32(0x9E3779B9), np.uint32(0xBB67AE85))
_ROUNDS = 10
_ROUNDS_AT_A_TIME = 2
# A few bits are made faster than a loop is started.
_FEWEST_BITS = 4096

_Words = tuple[jax.Array, ...]


def _rng_bit_generator(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    (key,) = eqn.invars
    shape = eqn.params["shape"]
    philox = eqn.params["algorithm"] in (lax.RandomAlgorithm.RNG_DEFAULT, lax.RandomAlgorithm.RNG_PHILOX)
    if not philox or key.aval.shape != (4,) or key.aval.dtype != jnp.uint32 or eqn.params["dtype"] != jnp.uint32:
        return None
    if math.prod(shape) < _FEWEST_BITS:
        return None
    new_key, bits = rewriter.emit_all(lambda key: _philox(key, shape), rewriter.plain(key))
    return [Stored(new_key, identity(1)), Stored(bits, identity(len(shape)))]


def _philox(key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Returns the key after drawing, and the bits. The key's first half is the generator's, the second its counter."""
    size = math.prod(shape)
    blocks = -(-size // 4)
    halves = lax.bitcast_convert_type(lax.reshape(key, (2, 2)), jnp.uint64)
    own, start = halves[0], halves[1]
    low = start + lax.iota(jnp.uint64, blocks)
    # XLA counts in 128 bits whose upper half is the key.
    high = own + lax.convert_element_type(low < start, jnp.uint64)
    words = _rounds((*_split(low), *_split(high)), _split(own))
    bits = lax.reshape(jnp.stack(words, axis=1), (blocks * 4,))[:size]
    after = lax.bitcast_convert_type(jnp.stack([own, start + np.uint64(blocks)]), jnp.uint32)
    return lax.reshape(after, (4,)), lax.reshape(bits, shape)


def _rounds(words: _Words, key: _Words) -> _Words:
    def some(state: tuple[_Words, _Words], _: None) -> tuple[tuple[_Words, _Words], None]:
        words, key = state
        for _round in range(_ROUNDS_AT_A_TIME):
            low0, high0 = _split(lax.convert_element_type(words[0], jnp.uint64) * _MULTIPLIERS[0])
            low1, high1 = _split(lax.convert_element_type(words[2], jnp.uint64) * _MULTIPLIERS[1])
            words = (high1 ^ words[1] ^ key[0], low1, high0 ^ words[3] ^ key[1], low0)
            key = (key[0] + _KEY_STEPS[0], key[1] + _KEY_STEPS[1])
        return (words, key), None

    (words, _), _ = lax.scan(some, (words, key), None, length=_ROUNDS // _ROUNDS_AT_A_TIME)
    return words


def _split(x: jax.Array) -> _Words:
    """Returns the lower and the upper halves of 64-bit words."""
    return (
        lax.convert_element_type(x, jnp.uint32),
        lax.convert_element_type(lax.shift_right_logical(x, lax.full_like(x, 32)), jnp.uint32),
    )


RULES = {"rng_bit_generator": _rng_bit_generator}
