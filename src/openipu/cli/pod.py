"""What the gc commands tell about a virtual pod: its boards, its IPUs, and the processes that hold them."""

import contextlib
import io
import shutil
import sys
import time
from collections.abc import Iterable, Iterator

import attrs
import click
import psutil
from rich.console import Console

from openipu.errors import OutOfIpusError
from openipu.hardware import Holding, RegistryError, System, Target, current_system, parse_system, registry

# The board each kind of IPU sits on, and how many of them share one (reference, 1.5).
BOARDS = {"mk1": ("C2", 2), "mk2": ("M2000", 4), "bow": ("Bow-2000", 4), "c600": ("C600", 1)}
PIPE_COLUMNS = 120
LOAD_SECONDS = 0.1


@attrs.frozen
class Ipu:
    """One virtual IPU as the tables show it.

    Args:
      id: its number in the partition, which is also the id of the device that has only this IPU.
      host: the virtual machine it is in.
      serial: the invented serial number of that machine.
      board: what kind of machine it is.
      number: its place on the board; as on the real ones, the last place has the lowest id.
    """

    id: int
    host: str
    serial: str
    board: str
    number: int


@attrs.frozen
class Load:
    """What a process needs of the machine it really runs on: processor time in per cent of one core, and bytes."""

    cpu: float
    rss: int


def ipus(system: System) -> list[Ipu]:
    """The IPUs of a partition, by id."""
    board, size = BOARDS[system.target.name]
    return [
        Ipu(number, f"virtual-{number // size}", f"virtual-{number // size:04}", f"virtual {board}", last)
        for number in range(system.count)
        for last in [size - 1 - number % size]
    ]


def partitions(everything: bool) -> list[System]:
    """The current partition, and on request those in which other programs hold IPUs."""
    current = current_system()
    if not everything:
        return [current]
    found = [current]
    for name in registry.partitions():
        try:
            system = parse_system(name, "the registry")
        except ValueError:
            continue
        if system.name != current.name and registry.read(name):
            found.append(system)
    return found


def loads(holdings: Iterable[Holding]) -> dict[int, Load]:
    """The load of each holder, by process id; those that end meanwhile are left out."""
    processes = {}
    for pid in {holding.pid for holding in holdings}:
        try:
            processes[pid] = psutil.Process(pid)
            processes[pid].cpu_percent()
        except psutil.Error:
            processes.pop(pid, None)
    if processes:
        # A share of processor time needs two looks at the clock.
        time.sleep(LOAD_SECONDS)
    found = {}
    for pid, process in processes.items():
        try:
            found[pid] = Load(process.cpu_percent(), process.memory_info().rss)
        except psutil.Error:
            continue
    return found


@contextlib.contextmanager
def said_plainly() -> Iterator[None]:
    """Turns what a user can do something about into one line instead of a traceback."""
    try:
        yield
    except (RegistryError, OutOfIpusError, ValueError) as error:
        raise click.ClickException(str(error)) from None


def clock(target: Target) -> str:
    """The clock as the tools write it."""
    return f"{target.clock_hz / 1e6:.0f}MHz"


def duration(seconds: float) -> str:
    """A time span in its two largest units."""
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def size(count: int) -> str:
    """Bytes in the unit that suits them."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"


def console() -> Console:
    """Plain text as wide as the terminal (`watch` tells it in COLUMNS), of fixed width in a pipe."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A command line may have letters that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="replace")
    width = max(shutil.get_terminal_size((PIPE_COLUMNS, 24)).columns, 40)
    return Console(width=width, color_system=None, highlight=False, emoji=False, markup=False, soft_wrap=False)
