"""Runs an executable that is one XLA program: the state stays on the device between executions."""

from collections.abc import Sequence

import jax
import numpy as np

from openipu.compiler import Executable
from openipu.runtime import tables
from openipu.runtime.engine import ExecutableEngine, Results, State, first_replica
from openipu.runtime.feed import as_aligned
from openipu.runtime.placing import own, put
from openipu.runtime.resident import Commit, Resident
from openipu.runtime.turns import alone
from openipu.runtime.waiting import wait_for


class DeviceEngine(ExecutableEngine):
    """An engine for one device, or for devices that carry the same number of replicas each, of all instances."""

    executable: Executable

    def __init__(self, executable: Executable, shared: Sequence[Resident], local: Sequence[Resident]) -> None:
        super().__init__(executable)
        self._state = State(executable.program, executable.plan, shared, local)
        places = executable.places
        self._homes = ([places.shared] * len(shared), [places.local] * len(local))
        self._unread: jax.Array | None = None

    def place_tables(self, arrays: Sequence[np.ndarray]) -> list[jax.Array]:
        """Put the arrays that the row numbers of an execution choose from where the executable wants them."""
        assert self.rows is not None
        return tables.place(arrays, self.program.batch, self.rows, self.executable.places.shared)

    def place_rows(self, numbers: np.ndarray) -> jax.Array:
        """Put the row numbers of one execution where the executable wants them."""
        return put(np.asarray(numbers, np.int32), self.executable.places.feeds)

    def place(self, feeds: Sequence[np.ndarray]) -> list[jax.Array]:
        """Put the feeds of one execution where the executable wants them."""
        slots = self.program.batch
        with jax.enable_x64(True):
            typed = [as_aligned(np.asarray(f, s.dtype)) for f, s in zip(feeds, slots, strict=True)]
            return [put(f, self.executable.places.feeds) for f in typed]

    def run(self, feeds: Sequence[jax.Array], seeds: Sequence[int]) -> Results:
        """One execution."""
        return alone(lambda: self._run(feeds, seeds))

    def _run(self, feeds: Sequence[jax.Array], seeds: Sequence[int]) -> Results:
        shared, local = self._state.take(*self._homes)
        placed = self._placed(seeds)

        def execute() -> tuple[Results, Commit]:
            made = self.executable.call(shared, local, list(feeds), placed)
            # What the host has to do is done while the device computes.
            new_shared, new_local, outputs, finished, first = made
            commit = self._state.stage(new_shared, new_local, first)
            results = Results([own(o) for o in outputs], [own(f) for f in finished])
            # The results of one program on one device are all there when one of them is.
            alone = len(self.executable.places.devices) == 1
            jax.block_until_ready(next((value for group in made for value in group), None) if alone else made)
            return results, commit

        results, commit = wait_for(execute)
        commit.done = True
        return results

    def _placed(self, seeds: Sequence[int]) -> jax.Array:
        """The seeds on the device. A program that draws nothing from its key does not read them: any will do."""
        if self._unread is not None:
            return self._unread
        start = first_replica(self.plan)
        own_seeds = seeds[start : start + self.plan.replicas]
        placed = put(self.plan.layout.seeds(own_seeds), self.executable.places.local)
        if not (self.program.needs_key or self.plan.stochastic_rounding):
            self._unread = placed
        return placed
