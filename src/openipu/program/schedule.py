"""Pipeline schedules: which IPU works on which stage and micro-batch in which time slot, and what that demands."""

import enum
import math
from collections.abc import Sequence

import attrs


class Schedule(enum.Enum):
    """The order in which pipeline stages take micro-batches."""

    GROUPED = "grouped"
    INTERLEAVED = "interleaved"
    SEQUENTIAL = "sequential"


class Kind(enum.Enum):
    """What is done to a micro-batch; the value is the letter shown in timelines."""

    FORWARD = "F"
    BACKWARD = "B"
    UPDATE = "U"


class ScheduleError(ValueError):
    """A number of micro-batches that the schedule cannot run; front ends raise it as their own error type."""


@attrs.frozen
class Work:
    """One piece of work: a pass of one stage over one micro-batch, or the weight update of one stage.

    Attributes:
      stage: the pipeline stage, counted from 0.
      micro_batch: the micro-batch, counted from 0; None for an update, which belongs to all of them.
      kind: what is done.
    """

    stage: int
    micro_batch: int | None
    kind: Kind

    def __str__(self) -> str:
        return self.kind.value if self.micro_batch is None else f"{self.kind.value}{self.micro_batch}"


@attrs.frozen
class Timeline:
    """One execution of a pipeline, from ramp-up to weight update.

    Attributes:
      schedule: the schedule it follows.
      stages: number of stages.
      count: number of micro-batches.
      training: whether there is a backward pass and an update.
      device_mapping: the IPU of each stage.
      slots: `slots[t][d]` is the work of IPU `d` in time slot `t`; idle when empty.
      updates: `updates[d]` is what IPU `d` updates once the last slot is over; all empty in inference.
    """

    schedule: Schedule
    stages: int
    count: int
    training: bool
    device_mapping: tuple[int, ...]
    slots: tuple[tuple[tuple[Work, ...], ...], ...]
    updates: tuple[tuple[Work, ...], ...]

    @property
    def devices(self) -> int:
        """Number of IPUs, with those no stage is mapped to (they are held all the same)."""
        return max(self.device_mapping) + 1

    def stages_on(self, device: int) -> tuple[int, ...]:
        """The stages mapped to one IPU."""
        return tuple(stage for stage, mapped in enumerate(self.device_mapping) if mapped == device)


def timeline(
    schedule: Schedule,
    stages: int,
    count: int,
    training: bool,
    device_mapping: Sequence[int] | None = None,
) -> Timeline:
    """Lays out the work of one pipeline execution.

    With one stage per IPU, an IPU does one piece of work in a slot, or in Grouped training one forward and one
    backward. Stages that share an IPU may share a slot too, except in the Sequential schedule. In inference Grouped
    and Interleaved are the same. Any positive count can be laid out; `check_count` says whether an IPU would take it.

    Args:
      schedule: the schedule.
      stages: number of stages.
      count: number of micro-batches.
      training: whether there is a backward pass and an update.
      device_mapping: the IPU of each stage; None puts stage i on IPU i.

    Returns:
      The timeline.
    """
    mapping = check_mapping(schedule, stages, training, device_mapping)
    _positive("count", count)
    grid: list[list[list[Work]]] = [
        [[] for _ in range(max(mapping) + 1)] for _ in range(total_slots(schedule, stages, count, training))
    ]
    period = _period(schedule, stages, training)
    for micro_batch in range(count):
        for position in range(_passes(stages, training)):
            if position < stages:
                work = Work(position, micro_batch, Kind.FORWARD)
            else:
                work = Work(2 * stages - 1 - position, micro_batch, Kind.BACKWARD)
            grid[period * micro_batch + position][mapping[work.stage]].append(work)
    return Timeline(
        schedule=schedule,
        stages=stages,
        count=count,
        training=training,
        device_mapping=mapping,
        # Forward before backward, as timelines are usually drawn.
        slots=tuple(
            tuple(tuple(sorted(cell, key=lambda work: (work.kind is Kind.BACKWARD, work.stage))) for cell in row)
            for row in grid
        ),
        updates=tuple(
            tuple(Work(stage, None, Kind.UPDATE) for stage in range(stages) if training and mapping[stage] == device)
            for device in range(max(mapping) + 1)
        ),
    )


def total_slots(schedule: Schedule, stages: int, count: int, training: bool) -> int:
    """Number of time slots of one execution, without the update."""
    return _period(schedule, stages, training) * (count - 1) + _passes(stages, training)


def stash_depth(schedule: Schedule, stages: int, stage: int) -> int:
    """Micro-batches whose activations wait between the forward and backward pass of a stage, in training.

    Counted while the backward pass works on another one, which is left out.
    """
    _positive("stages", stages)
    if not 0 <= stage < stages:
        raise ValueError(f"stage must be one of 0 to {stages - 1}. Received: stage={stage}, stages={stages}.")
    return {Schedule.GROUPED: 2, Schedule.INTERLEAVED: 1, Schedule.SEQUENTIAL: 0}[schedule] * (stages - 1 - stage)


def count_multiple(
    schedule: Schedule,
    stages: int,
    training: bool,
    device_mapping: Sequence[int] | None = None,
    io_tiles: bool = False,
) -> int:
    """The number that the count of micro-batches must be a multiple of.

    Args:
      schedule: the schedule.
      stages: number of stages.
      training: whether there is a backward pass.
      device_mapping: the IPU of each stage; None puts stage i on IPU i.
      io_tiles: whether tiles are set aside for I/O; Grouped then has a minimum (`count_minimum`), not a multiple.

    Returns:
      The multiple; 1 when any count will do.
    """
    mapping = check_mapping(schedule, stages, training, device_mapping)
    used = len(set(mapping))
    if schedule is Schedule.SEQUENTIAL or (schedule is Schedule.GROUPED and io_tiles) or used == 1:
        return 1
    per_stage = 2 if schedule is Schedule.GROUPED and training else 1
    # Stages sharing an IPU can shorten the repeating pattern, by how much depends on the compiler. The common divisor
    # accepts every count that is right for the number of stages, and every one that is right for the number of IPUs.
    return per_stage * math.gcd(stages, used)


def count_minimum(schedule: Schedule, stages: int, training: bool, io_tiles: bool = False) -> int:
    """The least number of micro-batches: with I/O tiles, loading and storing lengthen the Grouped pattern."""
    return _passes(stages, training) + 2 if schedule is Schedule.GROUPED and io_tiles else 1


def check_count(
    schedule: Schedule,
    stages: int,
    count: int,
    training: bool,
    device_mapping: Sequence[int] | None = None,
    io_tiles: bool = False,
) -> None:
    """Refuses a number of micro-batches that does not fit the schedule, with a `ScheduleError`."""
    multiple = count_multiple(schedule, stages, training, device_mapping, io_tiles)
    least = count_minimum(schedule, stages, training, io_tiles)
    names = (
        "This number might be called `gradient_accumulation_count`, `gradient_accumulation_steps_per_replica` "
        "or `steps_per_execution` depending on the API used."
    )
    if count < least:
        raise ScheduleError(
            f"The number of iterations of the pipeline must be at least {least}, but it is {count}. {names} "
            f"Use {math.ceil(least / multiple) * multiple} or more."
        )
    if count % multiple:
        lower = count // multiple * multiple
        near = " or ".join(str(value) for value in (lower, lower + multiple) if value)
        raise ScheduleError(
            f"The number of iterations of the pipeline must be a multiple of {multiple}, but it is {count}. {names} "
            f"Use {near}."
        )


def check_mapping(
    schedule: Schedule, stages: int, training: bool, device_mapping: Sequence[int] | None
) -> tuple[int, ...]:
    """The IPU of each stage, given or by default; refuses mappings that the schedule cannot run."""
    _positive("stages", stages)
    if device_mapping is None:
        return tuple(range(stages))
    if not isinstance(device_mapping, list | tuple):
        raise TypeError(
            f"device_mapping argument needs to be a list or a tuple. Received: {type(device_mapping).__name__}."
        )
    if len(device_mapping) != stages:
        raise ValueError(
            f"Each stage must be mapped to an IPU: {len(device_mapping)} mappings != {stages} stages. "
            f"Received: device_mapping={list(device_mapping)}. Give one IPU number per stage."
        )
    wrong = [device for device in device_mapping if not isinstance(device, int) or device < 0]
    if wrong:
        raise ValueError(
            f"device_mapping must hold IPU numbers, counted from 0. Received: device_mapping={list(device_mapping)}; "
            f"{wrong[0]!r} is not an IPU number."
        )
    if schedule is Schedule.INTERLEAVED and training and len(set(device_mapping)) < stages:
        raise NotImplementedError(
            "The pipelining schedule 'Interleaved' does not currently support multiple pipeline stages on the same "
            "device for training graphs. Please use a different pipeline schedule."
        )
    return tuple(device_mapping)


def _passes(stages: int, training: bool) -> int:
    """Time slots that one micro-batch takes from its first forward pass to its last pass."""
    return 2 * stages if training else stages


def _period(schedule: Schedule, stages: int, training: bool) -> int:
    """Time slots between two micro-batches entering the pipeline."""
    if schedule is Schedule.SEQUENTIAL:
        return _passes(stages, training)
    return 2 if schedule is Schedule.INTERLEAVED and training else 1


def _positive(name: str, value: int) -> None:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive integer. Received: {name}={value!r}.")
