"""Whether a module is being captured right now: what user code asks by `poptorch.isRunningOnIpu()`."""

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
