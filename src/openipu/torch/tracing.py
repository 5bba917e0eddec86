"""Whether a module is being captured right now, which user code asks by `poptorch.isRunningOnIpu()`, and for what."""

import contextlib
import contextvars
from collections.abc import Iterator

_capturing: contextvars.ContextVar[bool] = contextvars.ContextVar("capturing", default=False)


def isRunningOnIpu() -> bool:
    """Whether the code that asks is being captured for the IPU, rather than run on the host."""
    return _capturing.get()


@contextlib.contextmanager
def capturing() -> Iterator[None]:
    """Marks a piece of the program as the capture of a module."""
    token = _capturing.set(True)
    try:
        yield
    finally:
        _capturing.reset(token)


_training: contextvars.ContextVar[bool | None] = contextvars.ContextVar("openipu_training", default=None)


@contextlib.contextmanager
def capturing_for(training: bool) -> Iterator[None]:
    """Says whether the module being captured is going to be trained."""
    token = _training.set(training)
    try:
        yield
    finally:
        _training.reset(token)


def trains() -> bool:
    """Whether the module being captured is going to be trained."""
    return bool(_training.get())


def differentiates() -> bool:
    """Whether the module being captured may be differentiated: unless it is known to be for inference."""
    return _training.get() is not False
