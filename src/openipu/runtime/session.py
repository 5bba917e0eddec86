"""A program made ready to run: the engine it gets, and what stands around each of its executions."""

import logging
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from openipu import environment, hardware, model
from openipu.compiler import Cache, Traps, compile_program, traps
from openipu.compiler.inspection import Inspection
from openipu.compiler.pipeline import compile_pipeline, devices_for
from openipu.compiler.traps import NONE
from openipu.errors import InvalidNumberError, UnsupportedError
from openipu.model.fitting.fits import MemoryCheck
from openipu.program import Plan, Program
from openipu.runtime.device_engine import DeviceEngine
from openipu.runtime.engine import Engine, Results
from openipu.runtime.indices import IndexCheck
from openipu.runtime.offline_engine import OfflineEngine
from openipu.runtime.pipeline_engine import PipelineEngine
from openipu.runtime.resident import Resident
from openipu.runtime.synthetic import REAL, Synthetic
from openipu.runtime.turns import refuse_forked
from openipu.runtime.watching import Watch, nobody

log = logging.getLogger("openipu.tensorflow")


@attrs.frozen(eq=False)
class Setting:
    """Where and how programs run, as a front end's options say.

    Attributes:
      cache: where executables are kept; None compiles in every run.
      offline: programs are compiled for the cache alone: executions give zeros.
      synthetic: which data never goes between host and device.
      traps: which invalid numbers end an execution with `InvalidNumberError`.
      attach: called before every execution; sees to it that the IPUs are held.
      watch: who looks at programs while they are compiled and run.
      ipu_options: what the options of the front end mean to an IPU: memory and time, never results.
    """

    cache: Cache | None = None
    offline: bool = False
    synthetic: Synthetic = REAL
    traps: Traps = NONE
    attach: Callable[[], object] = lambda: None
    watch: Watch = nobody
    ipu_options: model.Options = attrs.Factory(model.Options)

    @property
    def asked(self) -> model.Options:
        """What is asked of an IPU, with what is decided here."""
        return attrs.evolve(self.ipu_options, synthetic_data=bool(self.synthetic.feeds))


class Session:
    """A program and a plan, compiled, on the values they work on.

    Attributes:
      engine: runs it.
      setting: where and how.
      draws: whether executions read their seeds.
      indices: looks at labels and indices before they are placed; what is placed by the session has been looked at.
    """

    def __init__(
        self,
        program: Program,
        plan: Plan,
        shared: Sequence[Resident],
        local: Sequence[Resident],
        setting: Setting,
        rows: int | None = None,
        watched: Sequence[int] = (),
    ) -> None:
        """Compiles.

        Args:
          program, plan: what is run, and how it is spread.
          shared, local: the values of the program's slots.
          setting: where and how.
          rows: keep the data on the device in tables of so many rows.
          watched: the indices of shared values that updates must leave finite, where invalid numbers are trapped.
        """
        refuse_forked()
        self.setting = setting
        self._untrapped = program
        self._watcher = setting.watch(program, plan, setting)
        started = time.perf_counter()
        if setting.synthetic.parameters:
            shared, local = ([setting.synthetic.resident(slot) for slot in s] for s in (program.shared, program.local))
        self._trap = Resident(read=lambda: np.zeros((), np.int32), write=lambda _: None)
        if setting.traps:
            program, local = traps.trapping(program, setting.traps, watched), [*local, self._trap]
        self.engine = _engine(program, plan, shared, local, setting, rows, self._memory_check(plan))
        self.draws = self.program.needs_key or self.plan.stochastic_rounding
        self.indices = IndexCheck(program.batch)
        self._estimate: model.Estimate | None = None
        if self._watcher is not None:
            self._watcher.compiled(time.perf_counter() - started)
        self._synthetic_feeds: Any = None

    def estimate(self) -> model.Estimate:
        """What an IPU of the virtual system would need; made when it is first asked for."""
        if self._estimate is None:
            target = hardware.current_system().target
            self._estimate = model.estimate(self._untrapped, self.plan, target, self.setting.asked)
        return self._estimate

    def _memory_check(self, plan: Plan) -> Inspection:
        target = hardware.current_system().target
        program, options = self._untrapped, self.setting.asked
        return MemoryCheck(program, plan, target, options, environment.memory(), not self.setting.traps)

    @property
    def program(self) -> Program:
        """What is run."""
        return self.engine.program

    @property
    def plan(self) -> Plan:
        """How it is spread."""
        return self.engine.plan

    def place(self, feeds: Callable[[], Sequence[np.ndarray]]) -> Any:
        """The feeds of one execution where the engine wants them; synthetic ones, if they are to be, always the same.

        Args:
          feeds: gives the data, with the axes of feeds; not called for synthetic data.
        """
        if not self.setting.synthetic.feeds:
            given = feeds()
            self.indices.one(given)
            return self.engine.place(given)
        if self._synthetic_feeds is None:
            self._synthetic_feeds = self.engine.place(self.setting.synthetic.feeds_of(self.program.batch, self.plan))
        return self._synthetic_feeds

    def run(self, feeds: Any, seeds: Sequence[int]) -> Results:
        """One execution on the attached IPUs."""
        if not self.setting.offline:
            self.setting.attach()
        started = time.perf_counter()
        results = self.engine.run(feeds, seeds)
        if self._watcher is not None:
            self._watcher.executed(time.perf_counter() - started)
        if self.setting.traps:
            results = self._checked(results)
        return results.zeros() if self.setting.synthetic.results else results

    def _checked(self, results: Results) -> Results:
        """The results without the number of the first exception, if there was none."""
        *finished, numbers = results.finished
        met = np.asarray(numbers)[np.asarray(numbers) != 0]
        if met.size:
            self._trap.forget_device()
            # What happened in a step is the cause of what is wrong with weights.
            raise InvalidNumberError(traps.site(self._untrapped, int(met.max())))
        return Results(results.outputs, finished)


def _engine(
    program: Program,
    plan: Plan,
    shared: Sequence[Resident],
    local: Sequence[Resident],
    setting: Setting,
    rows: int | None,
    inspection: Inspection | None,
) -> Engine:
    if setting.offline:
        return _offline(program, plan, setting.cache, rows, inspection)
    devices = devices_for(plan)
    if devices is not None:
        return PipelineEngine(compile_pipeline(program, plan, devices, setting.cache, inspection), shared, local)
    return DeviceEngine(compile_program(program, plan, rows, setting.cache, inspection), shared, local)


def _offline(
    program: Program, plan: Plan, cache: Cache | None, rows: int | None, inspection: Inspection | None
) -> OfflineEngine:
    assert cache is not None, "compiled for another run, but nowhere to keep it"
    executable = compile_program(program, plan, rows, cache, inspection)
    if executable.file is None:
        raise UnsupportedError(
            f"{program.name} cannot be compiled in advance: its executable could not be kept in {cache.folder}. "
            "Programs that print from the device are never kept; for other reasons see the warnings before this."
        )
    log.info("A pre-compiled Poplar program has been saved to %s", executable.file)
    return OfflineEngine(executable)


_all: "weakref.WeakSet[CompiledPrograms]" = weakref.WeakSet()


class CompiledPrograms(dict):
    """What was compiled in this process, by whatever tells programs apart; all are forgotten when devices change."""

    def __init__(self) -> None:
        super().__init__()
        _all.add(self)

    __hash__ = object.__hash__  # pyright: ignore[reportAssignmentType]

    def __eq__(self, other: object) -> bool:
        return self is other


def forget_compiled_programs() -> None:
    """Forget everything that was compiled: the devices it was compiled for are no longer the ones to run on."""
    for programs in list(_all):
        programs.clear()
