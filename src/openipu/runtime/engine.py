"""What runs executables: the contract of all engines, and the values that they work on."""

from collections.abc import Sequence
from typing import Any, Protocol

import attrs
import jax
import numpy as np
from jax.sharding import Sharding

from openipu import instances
from openipu.compiler import Executable
from openipu.compiler.pipeline import PipelineExecutable
from openipu.program import Plan, Program
from openipu.runtime.resident import Commit, New, Resident, stage, untouched


@attrs.frozen
class Results:
    """What one execution brings back: outputs of its steps, and what was computed once at its end.

    Outputs are those of this process' replicas; what was computed at the end is that of all of them, of all instances.
    """

    outputs: Sequence[jax.Array | np.ndarray]
    finished: Sequence[jax.Array | np.ndarray]

    def zeros(self) -> "Results":
        """Zeros in the place of results."""
        return Results([np.zeros(o.shape, o.dtype) for o in self.outputs],
                       [np.zeros(f.shape, f.dtype) for f in self.finished])  # fmt: skip


class Engine(Protocol):
    """Runs one executable on resident values, again and again.

    Attributes:
      program, plan: what is run.
      rows: the size of the tables that feeds choose rows from; None when feeds are the data themselves.
    """

    @property
    def program(self) -> Program: ...

    @property
    def plan(self) -> Plan: ...

    @property
    def rows(self) -> int | None: ...

    def place(self, feeds: Sequence[np.ndarray]) -> Any:
        """Put the feeds of one execution where the executable wants them."""
        ...

    def place_rows(self, numbers: np.ndarray) -> Any:
        """Put the row numbers of one execution where the executable wants them."""
        ...

    def place_tables(self, arrays: Sequence[np.ndarray]) -> list:
        """Put the arrays that row numbers choose from where the executable wants them."""
        ...

    def run(self, feeds: Any, seeds: Sequence[int]) -> Results:
        """One execution. When it fails or is interrupted, all values are those from before it, or those from after.

        Args:
          feeds: placed by `place`; for an executable with tables, the placed row numbers and then the tables.
          seeds: of the random numbers that this execution's steps draw from their key, one for every replica of all
            instances.
        """
        ...


class ExecutableEngine:
    """What every engine knows of the executable it runs."""

    def __init__(self, executable: Executable | PipelineExecutable) -> None:
        self.executable = executable

    @property
    def program(self) -> Program:
        """What is run."""
        return self.executable.program

    @property
    def plan(self) -> Plan:
        """How it is spread."""
        return self.executable.plan

    @property
    def rows(self) -> int | None:
        """The size of the tables that feeds choose rows from."""
        return self.executable.rows


def first_replica(plan: Plan) -> int:
    """Which of all replicas is the first of this process."""
    return instances.position() * plan.replicas if plan.instances > 1 else 0


class State:
    """The residents that a program works on."""

    def __init__(self, program: Program, plan: Plan, shared: Sequence[Resident], local: Sequence[Resident]) -> None:
        self._trains = program.update is not None
        self._layout = plan.layout
        start = first_replica(plan)
        self._seeds = [start if slot.seed else None for slot in program.local]
        self._shared, self._local = list(shared), list(local)
        self._last = Commit()

    def take(self, shared: Sequence[Sharding], local: Sequence[Sharding]) -> tuple[list[jax.Array], list[jax.Array]]:
        """All values on the device, each where it is wanted: most often where the last execution has left them."""
        values = untouched(self._shared, self._last) if self._trains else None
        if values is None:
            values = [resident.take(sharding) for resident, sharding in zip(self._shared, shared, strict=True)]
        own = untouched(self._local, self._last)
        if own is None:
            own = [
                resident.take(sharding, self._layout, seed)
                for resident, sharding, seed in zip(self._local, local, self._seeds, strict=True)
            ]
        return values, own

    def stage(self, shared: Sequence[jax.Array], local: Sequence[jax.Array], first: Sequence[jax.Array] = ()) -> Commit:
        """New values, which are the true ones when the commit is done: after everything was computed.

        Args:
          shared, local: what an execution makes.
          first: the local values of the first replica of all instances, if it is another's.
        """
        homes = first or [None] * len(local)
        new = [New(r, v, self._layout, h) for r, v, h in zip(self._local, local, homes, strict=True)]
        if self._trains:
            new += [New(r, v) for r, v in zip(self._shared, shared, strict=True)]
        self._last = stage(new)
        return self._last
