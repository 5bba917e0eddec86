"""Context variables that have a value while a block runs."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def during(variable: contextvars.ContextVar, value: T) -> Iterator[T]:
    """Give a context variable a value in the block, which gets it too."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
