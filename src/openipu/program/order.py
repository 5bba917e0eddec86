"""The order in which real devices carry out a timeline."""

from collections.abc import Iterable

from openipu.program.schedule import Kind, Timeline, Work


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
