"""The replica axis: its name, and how many replicas the function being traced runs on."""

import contextlib
import contextvars
from collections.abc import Iterator

AXIS = "replica"

_replicas: contextvars.ContextVar[int] = contextvars.ContextVar("openipu_replicas", default=1)


def count() -> int:
    """Replicas of the program being traced; with 1 there is no replica axis to communicate over."""
    return _replicas.get()


@contextlib.contextmanager
def tracing_for(replicas: int) -> Iterator[None]:
    """Trace for this many replicas: lowerings of cross-replica operations ask `count`."""
    token = _replicas.set(replicas)
    try:
        yield
    finally:
        _replicas.reset(token)
