"""Who looks at steps while they are compiled, and hears of those that come compiled from the cache."""

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

from jax.extend import core

from openipu.program import marks

# What JSON can hold; it is kept with the executable.
Notes = dict[str, Any]


class Inspection(Protocol):
    """Looks at the step of one replica; may refuse it by raising.

    Attributes:
      names: whether the step is to be traced with the names of layers.
    """

    @property
    def names(self) -> bool: ...

    def traced(self, step: core.ClosedJaxpr, structure: Any) -> Callable[[], Notes]:
        """Begins to look at a step as it was traced, before any pass.

        Called when XLA is about to compile it, which leaves Python's threads alone. What is returned is called when
        that is done, and gives what is worth knowing when the executable comes from the cache.
        """
        ...

    def loaded(self, notes: Notes) -> None:
        """The step was not traced: its executable came from the cache, with the notes of when it was compiled."""
        ...


def naming(inspection: Inspection | None) -> contextlib.AbstractContextManager:
    """Traces with the names of layers if they are looked at."""
    return marks.naming() if inspection is not None and inspection.names else contextlib.nullcontext()
