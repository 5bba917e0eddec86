"""Whose files may be run: the user's own, root's, and those of owners that the user names, as ssh does with keys."""

import os
import stat
from pathlib import Path

from openipu import environment

try:
    import grp
    import pwd
except ImportError:  # Not a system with owners and permissions like these.
    grp = pwd = None

_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def problem(path: Path) -> str | None:
    """Why what is in a file or folder could be somebody else's; None if it could not.

    Nobody but trusted users may be able to write it, or to put another one in its place: that holds for all folders on
    the way to it.

    Args:
      path: where no link is left (`Path.resolve`).
    """
    if pwd is None:
        return None
    trusted = _trusted()
    for place in (path, *path.parents):
        found = _problem(place, place.lstat(), trusted, place is path)
        if found is not None:
            return found
    return None


def opened_problem(path: Path, descriptor: int) -> str | None:
    """The same for a file that is open already, so that it cannot be exchanged between the look and the reading."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        return "it is not a file"
    if pwd is None:
        return None
    return _problem(path, found, _trusted(), True) or problem(path.parent)


def _problem(path: Path, status: os.stat_result, trusted: set[int], itself: bool) -> str | None:
    if status.st_uid not in trusted:
        return f"{path} belongs to {_user(status.st_uid)}"
    if not status.st_mode & _WRITABLE or _only_this_user(status):
        return None
    if not itself and status.st_mode & stat.S_ISVTX:
        # As in /tmp: others can add to it, but cannot exchange what is in it.
        return None
    return f"{path} can be written by others"


def _only_this_user(status: os.stat_result) -> bool:
    """Whether the group that may write is the user's own, as many systems give one to every user."""
    assert pwd is not None and grp is not None
    if status.st_mode & stat.S_IWOTH:
        return False
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
        group = grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}


def _trusted() -> set[int]:
    assert pwd is not None
    found = {0, os.getuid()}
    for name in environment.trusted_owners():
        try:
            found.add(int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid)
        except KeyError:
            raise ValueError(
                f"OPENIPU_CACHE_OWNERS must name users of this machine, separated by commas. Received: {name!r}."
            ) from None
    return found


def _user(number: int) -> str:
    assert pwd is not None
    try:
        return f"the user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"the user with the id {number}"
