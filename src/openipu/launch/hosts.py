"""Names of hosts: lists with ranges, host files, and what SLURM says."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import attrs

from openipu.launch.errors import LaunchError

_LOCAL = ("localhost", "127.0.0.1", "::1")


@attrs.frozen
class Host:
    """A host for instances.

    Attributes:
      name: as it was given.
      slots: how many instances it shall have; None for an even share.
    """

    name: str
    slots: int | None = None

    @property
    def local(self) -> bool:
        """Whether it is this machine."""
        return self.name in (*_LOCAL, socket.gethostname(), socket.getfqdn())


LOCALHOST = Host("localhost")


def parse(text: str) -> list[Host]:
    """Hosts of a list such as `a,b:2,node[0-2,4]`."""
    hosts = []
    for entry in _split(text):
        name, _, slots = entry.partition(":") if entry.count(":") == 1 else (entry, "", "")
        if slots and not (slots.isdigit() and int(slots) > 0):
            raise LaunchError(f"A host may be followed by a number of instances, as in b:2. Received: {entry!r}.")
        hosts += [Host(one, int(slots) if slots else None) for one in expand(name)]
    names = [host.name for host in hosts]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise LaunchError(f"Hosts are named more than once: {', '.join(repeated)}. Give a number instead, as in b:2.")
    if not hosts:
        raise LaunchError(f"There is no host in {text!r}. Give names, as in --host a,b.")
    return hosts


def read(path: Path) -> list[Host]:
    """Hosts of a file with one a line, which may have `slots=2` after it; # begins a comment."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise LaunchError(f"The host file {path} cannot be read: {error.strerror}.") from None
    entries = []
    for line in lines:
        words = line.partition("#")[0].split()
        if words:
            slots = next((word.removeprefix("slots=") for word in words[1:] if word.startswith("slots=")), "")
            entries.append(f"{words[0]}:{slots}" if slots else words[0])
    return parse(",".join(entries))


def expand(name: str) -> Iterator[str]:
    """The names that one with ranges in brackets stands for; numbers keep their width."""
    found = re.fullmatch(r"([^\[\]]*)\[([\d,\-]+)\](.*)", name)
    if found is None:
        if not re.fullmatch(r"[\w.\-:%]+", name):
            raise LaunchError(f"This is not the name of a host: {name!r}.")
        yield name
        return
    head, ranges, tail = found.groups()
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()) or (last and int(last) < int(first)):
            raise LaunchError(f"Ranges of hosts look like [0-2,4]. Received: {name!r}.")
        for number in range(int(first), int(last or first) + 1):
            yield from expand(f"{head}{number:0{len(first)}d}{tail}")


def _split(text: str) -> list[str]:
    """Entries between commas that are not inside of brackets."""
    return [entry.strip() for entry in re.split(r",(?![^\[]*\])", text) if entry.strip()]
