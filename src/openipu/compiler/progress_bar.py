"""How a compilation looks to the user: the original's bar on a terminal, plain lines elsewhere."""

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import TextIO

from openipu import environment
from openipu.compiler import progress
from openipu.compiler.progress import PHASES, Display, Progress

_WIDTH = 50
_PERIOD = 0.1
# Where lines are not asked for, only what keeps somebody waiting is worth one.
_PATIENCE = 2.0


def showing(
    name: str, wanted: bool | None, cached: bool, bar: Callable[[TextIO, str], Display] | None = None
) -> contextlib.AbstractContextManager[None]:
    """Shows what is compiled inside on this process' output.

    Args:
      name: of what is compiled.
      wanted: whether the program wants it shown; None leaves it to OPENIPU_PROGRESS and to the kind of output.
      cached: whether a finished executable may be found. The lookup comes before "Lowering": a hit shows nothing.
      bar: what draws on a terminal; `Bar` by default.
    """
    return progress.shown(name, display(wanted, "Lowering" if cached else "Capture", bar))


def display(shown: bool | None, after: str, bar: Callable[[TextIO, str], Display] | None = None) -> Display | None:
    """What shows a compilation on this process' output.

    Args:
      shown: whether the program wants it shown; None leaves it to OPENIPU_PROGRESS and to the kind of output.
      after: the first phase that is shown. A lookup in a cache comes before "Lowering": what is found is not shown.
      bar: what draws on a terminal; `Bar` by default.
    """
    wish = environment.progress()
    if wish == "off" or shown is False:
        return None
    always = wish == "on" or shown is True
    if sys.stdout is None or sys.stderr is None:  # Redirected to nowhere, or a process without a console.
        return None
    if sys.stdout.isatty():
        talkative = environment.log_level() in ("debug", "info")
        return (bar or Bar)(sys.stdout, after) if always or not talkative else None
    if always:
        return Lines(sys.stderr, after)
    return Lines(sys.stderr, after, _PATIENCE) if sys.stderr.isatty() else None


class Bar:
    """One line, redrawn in place."""

    def __init__(self, stream: TextIO, after: str = PHASES[0]) -> None:
        self._stream = stream
        self._first = PHASES.index(after)
        self._progress: Progress | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._redraw, name="openipu-progress", daemon=True)

    def update(self, progress: Progress) -> None:
        """Start drawing with the first phase that is to be shown."""
        if self._progress is None and progress.done >= self._first:
            self._progress = progress
            self._stream.write(f"Compiling module {progress.name}:\n")
            self._thread.start()

    def close(self) -> None:
        """Draw the last state and leave the line."""
        self._closed.set()
        if self._progress is not None:
            self._thread.join()
            self._draw()
            self._stream.write("\n")
            self._stream.flush()

    def _redraw(self) -> None:
        while not self._closed.is_set():
            self._draw()
            self._closed.wait(_PERIOD)

    def _draw(self) -> None:
        assert self._progress is not None
        progress = self._progress
        share = progress.done / len(PHASES)
        step = "Compilation Finished" if progress.finished else f"Step: {progress.phase}"
        filled = "#" * round(share * _WIDTH)
        line = f"[{filled:<{_WIDTH}}] {share:.0%} {step} [Elapsed: {_clock(progress.seconds)}]"
        self._stream.write(f"\x1b[2K\r{line}")
        self._stream.flush()


class Lines:
    """A line for every phase, once the compilation takes longer than somebody's patience."""

    def __init__(self, stream: TextIO, after: str = PHASES[0], patience: float = 0.0) -> None:
        self._stream = stream
        self._first = PHASES.index(after)
        self._patience = patience
        self._progress: Progress | None = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._speaks = patience == 0.0

    def update(self, progress: Progress) -> None:
        """Say the phase, or wait to see whether there is need to."""
        if progress.done < self._first:
            return
        with self._lock:
            self._progress = progress
            if self._speaks:
                self._say()
            elif self._timer is None:
                self._timer = threading.Timer(max(self._patience - progress.seconds, 0.0), self._speak)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """Say nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    def _speak(self) -> None:
        with self._lock:
            self._speaks = True
            if self._progress is not None and not self._progress.finished:
                self._say()

    def _say(self) -> None:
        assert self._progress is not None
        progress = self._progress
        step = "Compilation Finished" if progress.finished else f"{progress.phase} …"
        self._stream.write(f"Compiling module {progress.name}: {step} [Elapsed: {_clock(progress.seconds)}]\n")
        self._stream.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds, 1), 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours:02d}:{minutes:02d}:{rest:04.1f}"
