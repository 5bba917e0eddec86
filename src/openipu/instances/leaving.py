"""Parting from the other instances: together after a good end, at once after a bad one, which the launcher sees."""

import atexit
import contextlib
import os
import sys
from types import TracebackType
from typing import Any, NoReturn

import jax

# The exit code of a process that is failing.
_failed: int | None = None


def arrange() -> None:
    """Have this process part from the others when it ends; called once, after it has joined them."""
    _watch_exceptions()
    _watch_exits()
    atexit.register(_leave, os.getpid())


def _leave(pid: int) -> None:
    if os.getpid() != pid:
        return  # A forked process has never met the others.
    if _failed is not None:
        # The others may be waiting for this one, and JAX's runtime would wait for them, even in its destructors.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(_failed)
    # Somebody else may be gone already, and with it the agreement to part; the launcher says who.
    with contextlib.suppress(RuntimeError):
        jax.distributed.shutdown()


def _watch_exceptions() -> None:
    """Notice an exception that nobody catches."""
    show = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        _fail(1)
        return show(kind, error, trace)

    sys.excepthook = excepthook


def _watch_exits() -> None:
    """Notice an exit with a code that means failure; the interpreter tells it to nobody."""
    leave = sys.exit

    def exit(status: Any = None, /) -> NoReturn:
        if status not in (None, 0):
            _fail(status & 0xFF or 1 if isinstance(status, int) else 1)
        leave(status)

    sys.exit = exit


def _fail(code: int) -> None:
    global _failed
    _failed = code
