"""Who a process is: its identity while it lives, its command and its user."""

import os
import shlex
import sys
from pathlib import PurePath

import attrs
import psutil

# Start times come in ticks of 10 ms; the kernel does not give the same number to two processes within that.
_TICKS = 0.05


@attrs.frozen
class Identity:
    """A process, told apart from later ones that get the same number.

    Args:
      pid: its number.
      started: when it started, on a clock that a change of the system's time does not move.
    """

    pid: int
    started: float

    def alive(self) -> bool:
        """Whether this very process still runs; one that was killed and not yet waited for does not."""
        try:
            if not 0 < self.pid < 2**31:
                return False
            process = psutil.Process(self.pid)
            same = abs(_started(process) - self.started) < _TICKS
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.AccessDenied:
            return True
        except psutil.NoSuchProcess:
            return False


def this_process() -> Identity:
    """The identity of the process that asks (a forked child gets its own)."""
    return Identity(os.getpid(), _started(psutil.Process()))


def command_line() -> str:
    """The command this process was started with."""
    return shlex.join(psutil.Process().cmdline() or sys.orig_argv or [sys.executable])


def user_name() -> str:
    """The user this process runs as."""
    return psutil.Process().username()


def short_command(command: str) -> str:
    """A command on one line, without the folder of the program and without what would steer a terminal."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    if words:
        words[0] = PurePath(words[0]).name
    return printable(" ".join(" ".join(words).split()))


def printable(text: str) -> str:
    """A text without what would steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _started(process: psutil.Process) -> float:
    # Linux knows the start since boot and psutil adds the boot time, which moves with the clock: take it away again.
    boot = psutil.boot_time() if psutil.LINUX else 0.0
    return process.create_time() - boot
