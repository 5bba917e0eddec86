"""Threads of a process take turns, and a forked process is told that it cannot run programs."""

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import jax

from openipu.errors import ForkedError
from openipu.jax_boundary import backends_initialised

T = TypeVar("T")

# Taken in this order, all by `with`, whose entry no signal comes into: a function of Python's that takes a lock may be
# left by an exception before its caller knows that it has it.
_compilation = threading.RLock()
_execution = threading.RLock()
# Held for moments only, while values change places.
VALUES = threading.RLock()

_forked = False


def alone(execute: Callable[[], T]) -> T:
    """One execution of this process at a time: it uses all cores anyway, and programs share values."""
    refuse_forked()
    with _execution, jax.enable_x64(True):
        return execute()


def compiling() -> AbstractContextManager[Any]:
    """Held while a program is captured and compiled, so that two threads that need one do not both make it."""
    refuse_forked()
    return _compilation


def refuse_forked() -> None:
    """JAX's threads do not exist in a process that was forked after they began: what waits for them waits for ever."""
    if _forked:
        raise ForkedError(
            "This process was forked from one that has run programs on IPUs; programs cannot run in it, because the "
            "threads of JAX are not there. Start it with multiprocessing.get_context('spawn') instead. Weights can "
            "still be read here."
        )


def _begin_as_child() -> None:
    global _compilation, _execution, VALUES, _forked
    # Another thread of the parent may have held them.
    _compilation, _execution, VALUES = threading.RLock(), threading.RLock(), threading.RLock()
    _forked = _forked or backends_initialised()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_as_child)
