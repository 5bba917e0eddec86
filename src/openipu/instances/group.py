"""The instances that act together now: all, or those that a part of the program was limited to."""

import contextlib
import contextvars
from collections.abc import Collection, Iterator

from openipu.contexts import during
from openipu.errors import InstanceError
from openipu.instances.joining import joined

_members: contextvars.ContextVar[tuple[int, ...] | None] = contextvars.ContextVar("openipu_members", default=None)


def current() -> tuple[int, ...]:
    """The numbers of the instances that act together, in order."""
    members = _members.get()
    if members is not None:
        return members
    place = joined()
    return tuple(range(place[1])) if place is not None else (0,)


@contextlib.contextmanager
def only(members: Collection[int]) -> Iterator[None]:
    """Limit what is done together to some instances; this process must be one of them."""
    index, count = joined() or (0, 1)
    chosen = tuple(sorted(set(members)))
    if not chosen or chosen[0] < 0 or chosen[-1] >= count:
        raise InstanceError(f"Instances are numbers from 0 to {count - 1}. Received: {sorted(set(members))}.")
    if index not in chosen:
        raise InstanceError(f"Instance {index} is none of {list(chosen)}.")
    with during(_members, chosen):
        yield


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Limit what is done together to this process, whatever the others do."""
    place = joined()
    with only([place[0] if place is not None else 0]):
        yield


def position() -> int:
    """Which of the instances that act together this process is."""
    place = joined()
    return current().index(place[0]) if place is not None else 0
