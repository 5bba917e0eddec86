"""Whether a module is being captured right now, which user code asks by `poptorch.isRunningOnIpu()`, and for what."""

import contextvars
from contextlib import AbstractContextManager

from openipu.contexts import during

_capturing: contextvars.ContextVar[bool] = contextvars.ContextVar("capturing", default=False)


def isRunningOnIpu() -> bool:
    """Whether the code that asks is being captured for the IPU, rather than run on the host."""
    return _capturing.get()


def capturing() -> AbstractContextManager[bool]:
    """Marks a piece of the program as the capture of a module."""
    return during(_capturing, True)


_training: contextvars.ContextVar[bool | None] = contextvars.ContextVar("openipu_training", default=None)


def capturing_for(training: bool) -> AbstractContextManager[bool]:
    """Says whether the module being captured is going to be trained."""
    return during(_training, training)


def trains() -> bool:
    """Whether the module being captured is going to be trained."""
    return bool(_training.get())


def differentiates() -> bool:
    """Whether the module being captured may be differentiated: unless it is known to be for inference."""
    return _training.get() is not False
