"""What is being compiled and how far it is, told to whoever shows it."""

import contextlib
import contextvars
import time
from collections.abc import Iterator
from typing import Protocol

from openipu.contexts import during

# Every compilation goes through these, in this order.
PHASES = ("Capture", "Lowering", "Passes", "XLA Compilation")


class Progress:
    """One compilation: its name, its phase, and since when it runs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.phase: str | None = None
        self.finished = False
        self._started = time.perf_counter()

    @property
    def done(self) -> int:
        """How many phases are complete."""
        if self.finished:
            return len(PHASES)
        return PHASES.index(self.phase) if self.phase is not None else 0

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.perf_counter() - self._started


class Display(Protocol):
    """Shows a compilation to the user."""

    def update(self, progress: Progress) -> None:
        """A phase began, or all are complete."""
        ...

    def close(self) -> None:
        """The compilation ended, completed or not."""
        ...


_active: contextvars.ContextVar[tuple[Progress, Display] | None] = contextvars.ContextVar("progress", default=None)


@contextlib.contextmanager
def shown(name: str, display: Display | None) -> Iterator[None]:
    """Phases that begin inside are those of the compilation of `name`, shown by `display` if there is one."""
    if display is None:
        yield
        return
    try:
        with during(_active, (Progress(name), display)):
            yield
    finally:
        display.close()


def begin(phase: str) -> None:
    """Note that a phase begins; nothing happens when nobody wants to know."""
    if (active := _active.get()) is not None:
        progress, display = active
        progress.phase = phase
        display.update(progress)


def finish() -> None:
    """Note that XLA has made an executable; one that comes from the cache is not compiled and never gets here."""
    if (active := _active.get()) is not None:
        progress, display = active
        progress.finished = True
        display.update(progress)
