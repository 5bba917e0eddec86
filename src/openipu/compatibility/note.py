"""What to expect of one name, and how objects carry it."""

import enum
from typing import Any, TypeVar

import attrs

_ATTRIBUTE = "__openipu_compatibility__"
Named = TypeVar("Named")


class Status(enum.Enum):
    """What happens when a program uses a name."""

    WORKS = "works"
    ACCEPTED = "accepted, no effect"
    REFUSED = "refused"
    MISSING = "missing"


@attrs.frozen
class Note:
    """A status, and a remark: the reason, or what is different."""

    status: Status
    remark: str = ""


def works(remark: str) -> Note:
    """It does what it did, except for what the remark says."""
    return Note(Status.WORKS, remark)


def accepted(reason: str) -> Note:
    """It can be used as ever, and changes nothing."""
    return Note(Status.ACCEPTED, reason)


def refused(reason: str) -> Note:
    """Using it raises `openipu.errors.UnsupportedError`."""
    return Note(Status.REFUSED, reason)


def noted(named: Named, note: Note) -> Named:
    """The same function or class, with a note."""
    setattr(named, _ATTRIBUTE, note)
    return named


def note_of(named: Any) -> Note | None:
    """The note that a function or class carries itself: subclasses do not inherit it."""
    return getattr(named, "__dict__", {}).get(_ATTRIBUTE)
