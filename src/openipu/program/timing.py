"""When each piece of a timeline's work starts and ends, and how long IPUs stand idle meanwhile."""

from collections.abc import Mapping

import attrs

from openipu.program.order import in_slot
from openipu.program.schedule import Kind, Timeline, Work

# How long one piece of work of a stage takes, in any unit of time.
Durations = Mapping[tuple[int, Kind], float]


@attrs.frozen
class Span:
    """A piece of work placed in time.

    Attributes:
      work: what is done.
      device: the IPU that does it.
      slot: its time slot; an update's is the one after the last.
      start: when it begins.
      end: when it ends.
    """

    work: Work
    device: int
    slot: int
    start: float
    end: float


def spans(timeline: Timeline, durations: Durations | None = None) -> tuple[Span, ...]:
    """Places all work in time, updates included.

    IPUs exchange data between slots and wait for each other there, so a slot lasts as long as its busiest IPU.

    Args:
      timeline: the timeline.
      durations: what each kind of work takes on each stage; None gives every piece of work the time 1.

    Returns:
      The spans, slot by slot and IPU by IPU.
    """
    placed = []
    begin = 0.0
    for slot, row in enumerate((*timeline.slots, timeline.updates)):
        following = begin
        for device, cell in enumerate(row):
            start = begin
            for work in in_slot(cell):
                end = start + _duration(work, durations)
                placed.append(Span(work, device, slot, start, end))
                start = end
            following = max(following, start)
        begin = following
    return tuple(placed)


def idle_fraction(timeline: Timeline, durations: Durations | None = None) -> float:
    """The bubble: the part of the IPUs' time in which they wait, the update left out.

    With equal durations and one stage per IPU it is `(N - 1) / (count + N - 1)` for N stages, Sequential apart.
    """
    passes = [span for span in spans(timeline, durations) if span.work.kind is not Kind.UPDATE]
    length = max(span.end for span in passes)
    if not length:
        return 0.0
    return 1 - sum(span.end - span.start for span in passes) / (length * timeline.devices)


def _duration(work: Work, durations: Durations | None) -> float:
    if durations is None:
        return 1.0
    try:
        return durations[work.stage, work.kind]
    except KeyError:
        raise ValueError(
            "durations must name the time of every kind of work on every stage. "
            f"Received: none for stage {work.stage}, {work.kind}. Add durations[({work.stage}, {work.kind})]."
        ) from None
