"""An execution that calls the host while it runs is waited for in such a way that a signal can end it."""

import contextvars
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import jax

from openipu.contexts import during
from openipu.runtime.signals import start

T = TypeVar("T")

# Seconds after which whoever waits looks for signals.
_LONGEST = 0.5

_stop: contextvars.ContextVar[Callable[[], None] | None] = contextvars.ContextVar("openipu_stop", default=None)


def stoppable(stop: Callable[[], None]) -> AbstractContextManager[Callable[[], None]]:
    """Executions in here may be interrupted.

    Args:
      stop: makes an execution that runs in another thread fail soon; may be called more than once.
    """
    return during(_stop, stop)


def wait_for(call: Callable[[], T]) -> T:
    """What `call` returns. Where it may be stopped it runs in another thread: nothing interrupts one that is in C++.

    Whatever interrupts the waiting, the call has ended when it is raised here.
    """
    stop = _stop.get()
    return call() if stop is None else _Aside(call, stop).wait()


class _Aside:
    def __init__(self, call: Callable[[], Any], stop: Callable[[], None]) -> None:
        self._call, self._stop = call, stop
        self._cancelled = False
        self._running = threading.Lock()
        self._ended = threading.Event()
        self._made: list[Any] = []
        self._error: BaseException | None = None

    def wait(self) -> Any:
        try:
            start(threading.Thread(target=self._work, name="openipu-execution", daemon=True))
            # A signal that the system gave to another thread wakes nobody.
            while not self._ended.wait(_LONGEST):
                pass
        except BaseException:
            self._end()
            raise
        if self._error is not None:
            raise self._error
        return self._made[0]

    def _work(self) -> None:
        with self._running:
            try:
                if not self._cancelled:
                    with jax.enable_x64(True):
                        self._made.append(self._call())
            except BaseException as error:
                self._error = error
            finally:
                self._ended.set()

    def _end(self) -> None:
        """Returns when the call does not run, and never will."""
        self._cancelled = True
        while True:
            try:
                self._stop()
                with self._running:
                    return
            except BaseException:
                # A second signal: the first one's exception is raised as soon as the step that runs is over.
                continue
