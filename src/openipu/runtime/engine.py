"""An executable with the values it works on: run it again and again, the state stays on the device."""

from collections.abc import Sequence

import attrs
import jax
import numpy as np

from openipu.compiler import Executable
from openipu.runtime import tables
from openipu.runtime.resident import Resident


@attrs.frozen
class Results:
    """What one execution brings back: outputs of its steps, and what was computed once at its end."""

    outputs: Sequence[jax.Array | np.ndarray]
    finished: Sequence[jax.Array | np.ndarray]


class Engine:
    """Runs one executable on resident values."""

    def __init__(self, executable: Executable, shared: Sequence[Resident], local: Sequence[Resident]) -> None:
        self.executable = executable
        self._shared = list(shared)
        self._local = list(local)
        self._lanes = executable.plan.replicas if executable.plan.replicas > 1 else 0
        self._unread: jax.Array | None = None

    def place_tables(self, arrays: Sequence[np.ndarray]) -> list[jax.Array]:
        """Put the arrays that the row numbers of an execution choose from where the executable wants them."""
        executable = self.executable
        assert executable.rows is not None
        return tables.place(arrays, executable.program.batch, executable.rows, executable.shared_sharding)

    def place_rows(self, numbers: np.ndarray) -> jax.Array:
        """Put the row numbers of one execution where the executable wants them."""
        return jax.device_put(numbers.astype(np.int32), self.executable.feed_sharding)

    def place(self, feeds: Sequence[np.ndarray]) -> list[jax.Array]:
        """Put the feeds of one execution where the executable wants them."""
        slots = self.executable.program.batch
        with jax.enable_x64(True):
            typed = [np.asarray(f, s.dtype) for f, s in zip(feeds, slots, strict=True)]
            return jax.device_put(typed, self.executable.feed_sharding)

    def run(self, feeds: Sequence[jax.Array], seeds: Sequence[int]) -> Results:
        """One execution.

        Args:
          feeds: placed by `place`; for an executable with tables, the placed row numbers and then the tables.
          seeds: of the random numbers that this execution's steps draw from their key, one for every replica.
        """
        executable = self.executable
        slots = executable.program.local
        with jax.enable_x64(True):
            given = self._placed(seeds)
            shared = [r.take(executable.shared_sharding) for r in self._shared]
            local = [
                r.take(executable.local_sharding, self._lanes, s.seed) for r, s in zip(self._local, slots, strict=True)
            ]
            shared, local, outputs, finished = executable.call(shared, local, list(feeds), given)
        if executable.program.update is not None:
            for resident, value in zip(self._shared, shared, strict=True):
                resident.give(value)
        for resident, value in zip(self._local, local, strict=True):
            resident.give(value, self._lanes)
        return Results(outputs, finished)

    def _placed(self, seeds: Sequence[int]) -> jax.Array:
        """The seeds on the device. A program that draws nothing from its key does not read them: any will do."""
        if self._unread is not None:
            return self._unread
        given = np.array([s % 2**64 for s in seeds], np.uint64)
        placed = jax.device_put(given if self._lanes else given[0], self.executable.local_sharding)
        if not self.executable.program.needs_key:
            self._unread = placed
        return placed
