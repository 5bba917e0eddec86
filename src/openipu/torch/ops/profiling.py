"""Trace points that programs set; they cost nothing, because the tracing library exists on real systems only."""

import contextlib
from collections.abc import Iterator
from typing import Any


class Channel:
    """A named group of trace points.

    Args:
      name: the group's name in a trace.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def instrument(self, obj: Any, *methods: str) -> Any:
        """Marks methods of an object to be traced.

        Args:
          obj: the object.
          methods: names of methods it has.

        Returns:
          The object.
        """
        missing = [method for method in methods if not hasattr(obj, method)]
        if missing:
            raise AttributeError(f"{type(obj).__name__} has no method {missing[0]!r} to instrument.")
        return obj

    @contextlib.contextmanager
    def tracepoint(self, name: str) -> Iterator[None]:
        """Marks a piece of the program to be traced."""
        yield
