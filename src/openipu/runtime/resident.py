"""A value that has its home on the host and lives on the device between executions."""

import weakref
from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import Sharding

_away: "weakref.WeakSet[Resident]" = weakref.WeakSet()


class Resident:
    """One value with two places to be.

    The host's copy is true until an execution takes the value to the device. Then the device's is true until somebody
    asks for the host's: that brings the value home, and because whoever looks at it may also change it, the next
    execution takes it from the host again.
    """

    def __init__(self, read: Callable[[], np.ndarray], write: Callable[[np.ndarray], None]) -> None:
        self._read = read
        self._write = write
        self._value: jax.Array | None = None
        self._lanes = 0
        self._changed = False

    @property
    def away(self) -> bool:
        """Whether the device holds the value."""
        return self._value is not None

    def take(self, sharding: Sharding, lanes: int = 0, seed: bool = False) -> jax.Array:
        """The value on the device, with a leading axis of `lanes` replicas (0: no such axis).

        Args:
          sharding: where it is wanted.
          lanes: replicas, each with its own copy.
          seed: give every replica another value (the first keeps the host's), because it seeds a random generator.
        """
        value = self._value
        if value is not None and value.sharding == sharding and self._lanes == lanes:
            return value
        self.bring_home()
        host = np.asarray(self._read())
        if lanes:
            host = _spread_seed(host, lanes) if seed else np.broadcast_to(host, (lanes, *host.shape))
        # A copy: the host's buffer may be changed in place while the device still reads it.
        placed = jax.device_put(np.array(host), sharding)
        self._value, self._lanes, self._changed = placed, lanes, False
        return placed

    def give(self, value: jax.Array, lanes: int = 0) -> None:
        """The execution's new value; it stays on the device."""
        self._value, self._lanes, self._changed = value, lanes, True
        _away.add(self)

    def bring_home(self) -> None:
        """Make the host's copy true again; with replicas, that of the first one."""
        value, self._value = self._value, None
        if value is not None and self._changed:
            self._changed = False
            _away.discard(self)
            self._write(np.asarray(value[0] if self._lanes else value))


def bring_all_home() -> None:
    """Bring every changed value home: for code that reads host values behind their owners' backs."""
    for resident in list(_away):
        resident.bring_home()


def _spread_seed(seed: np.ndarray, lanes: int) -> np.ndarray:
    """A different seed for every replica; the first keeps the given one, so one replica draws as the host would."""
    lane = np.arange(lanes, dtype=np.uint64).reshape(-1, *([1] * seed.ndim))
    offset = lane * np.uint64(0x9E3779B97F4A7C15)  # odd, so that lanes stay distinct
    return (seed[None].astype(np.uint64) + offset).astype(seed.dtype)
