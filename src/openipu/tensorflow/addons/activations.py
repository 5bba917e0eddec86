"""The names of activations that recurrent layers accept."""

from collections.abc import Sequence
from typing import Any


def activation_name(argument: str, given: Any, accepted: Sequence[str]) -> str:
    """The name of an activation that is given by its name or as a function; refuses others than the accepted ones."""
    name = given if isinstance(given, str) else getattr(given, "__name__", repr(given))
    if name not in accepted:
        raise ValueError(f"{argument} must be one of {', '.join(accepted)}. Received: {argument}={given!r}.")
    return name
