"""Signals that wait a moment: libraries in C++ do not survive an exception of a handler everywhere."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

# Those whose handlers raise exceptions: Ctrl-C, an end by the system or a scheduler, a time limit.
_WAITING = tuple(
    number for name in ("SIGINT", "SIGTERM", "SIGALRM", "SIGUSR1", "SIGUSR2")
    if (number := getattr(signal, name, None)) is not None
)  # fmt: skip


class held:
    """A context in which no handler of a signal runs; those that came run at its end.

    For calls that take microseconds: whoever presses Ctrl-C waits for them. Only the main thread runs handlers.
    """

    __slots__ = ("_before", "_came")

    def __enter__(self) -> None:
        self._before: dict[int, Any] = {}
        self._came: list[int] = []
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for number in _WAITING:
                handler = signal.getsignal(number)
                if callable(handler):
                    # Known before it is replaced: a handler that has not been may still raise here.
                    self._before[number] = handler
                    signal.signal(number, self._note)
        except BaseException:
            self._restore()
            raise

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._restore()
        _deliver(list(dict.fromkeys(self._came)))

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def start(thread: threading.Thread) -> None:
    """Start a thread. The exception of a signal, in the middle of it, would come out as one of a lock."""
    with held():
        thread.start()


def _deliver(numbers: list[int]) -> None:
    if numbers:
        try:
            signal.raise_signal(numbers[0])
        finally:
            # The first handler may raise an exception; the others run too.
            _deliver(numbers[1:])
