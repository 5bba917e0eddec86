"""The order in which real devices carry out a timeline: one after another on one device, or concurrently on several."""

from collections.abc import Iterable

import attrs

from openipu.program.schedule import Kind, Timeline, Work


@attrs.frozen
class Task:
    """A piece of work in the queue of one IPU.

    Attributes:
      work: what to do.
      needs: the work whose results it uses.
      waits: those of `needs` that another IPU does; the others come earlier in the same queue.
    """

    work: Work
    needs: tuple[Work, ...]
    waits: tuple[Work, ...]


def needs(timeline: Timeline, work: Work) -> tuple[Work, ...]:
    """The work whose results a piece of work uses directly.

    A forward pass uses the activations of the stage before; a backward pass those of its own forward pass and the
    gradient from the stage after. An update uses the last backward pass of all stages, because an optimizer may look
    at all gradients together (clipping by their global norm); by then the other micro-batches are through.
    """
    stage, micro_batch = work.stage, work.micro_batch
    if work.kind is Kind.UPDATE:
        return tuple(Work(other, timeline.count - 1, Kind.BACKWARD) for other in range(timeline.stages))
    if work.kind is Kind.FORWARD:
        return (Work(stage - 1, micro_batch, Kind.FORWARD),) if stage else ()
    own = Work(stage, micro_batch, Kind.FORWARD)
    return (own, Work(stage + 1, micro_batch, Kind.BACKWARD)) if stage + 1 < timeline.stages else (own,)


def in_slot(works: Iterable[Work]) -> tuple[Work, ...]:
    """The work of one time slot in the order it is carried out.

    Nothing in a slot depends on the rest of it. Backward goes first: it frees the activations of one micro-batch
    before a forward pass makes those of another. Late stages go first for the same reason.
    """
    return tuple(sorted(works, key=lambda work: (work.kind is not Kind.BACKWARD, -work.stage)))


def order(timeline: Timeline) -> tuple[Work, ...]:
    """All work, updates included, in a valid order for one real device."""
    rows = (*timeline.slots, timeline.updates)
    return tuple(work for row in rows for work in in_slot(work for cell in row for work in cell))


def queues(timeline: Timeline) -> tuple[tuple[Task, ...], ...]:
    """The tasks of each IPU, in order, for IPUs that run concurrently.

    Taking the tasks of each queue in order, each when its `waits` are done, never deadlocks: all waits end in an
    earlier time slot.
    """
    return tuple(
        tuple(
            _task(timeline, work, device)
            for row in (*timeline.slots, timeline.updates)
            for work in in_slot(row[device])
        )
        for device in range(timeline.devices)
    )


def _task(timeline: Timeline, work: Work, device: int) -> Task:
    used = needs(timeline, work)
    return Task(work, used, tuple(other for other in used if timeline.device_mapping[other.stage] != device))
