"""The seeds that executions draw: a stream of 64-bit numbers for every TensorFlow IPU device."""

import operator
import random
import threading

import attrs


@attrs.frozen
class Seed:
    """The seed of one execution.

    Args:
      value: 64 bits.
      identical_replicas: whether all replicas use it as it is; otherwise each one mixes in its own number.
    """

    value: int
    identical_replicas: bool


@attrs.frozen
class _Stream:
    generator: random.Random
    identical_replicas: bool


_lock = threading.Lock()
_streams: dict[int, _Stream] = {}


def reset(seed: int, ordinal: int = 0, identical_replicas: bool = False) -> None:
    """Starts the stream of device `ordinal` anew, so that what follows can be repeated."""
    # Taken modulo 2**64 because `random` drops the sign, which would make 1 and -1 the same seed.
    generator = random.Random(operator.index(seed) % 2**64)
    with _lock:
        _streams[ordinal] = _Stream(generator, identical_replicas)


def draw(ordinal: int = 0) -> Seed:
    """The seed of the next execution on device `ordinal`; random until `reset` is called."""
    with _lock:
        stream = _streams.get(ordinal)
        if stream is None:
            stream = _streams[ordinal] = _Stream(random.Random(), False)
        return Seed(stream.generator.getrandbits(64), stream.identical_replicas)


def forget() -> None:
    """Makes all streams random again."""
    with _lock:
        _streams.clear()
