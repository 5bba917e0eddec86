"""The table from operation names to the functions that evaluate them."""

from collections.abc import Callable
from typing import TypeVar

Handler = Callable[..., list]
H = TypeVar("H", bound=Handler)

_HANDLERS: dict[str, Handler] = {}
_REFUSALS: dict[str, str] = {}


def op(*names: str) -> Callable[[H], H]:
    """Register a function `(op, operand values, frame) -> result values` for the operations `names`."""

    def register(handler: H) -> H:
        for name in names:
            if name in _HANDLERS:
                raise ValueError(f"Expected one handler for each operation. Received a second one for {name!r}.")
            _HANDLERS[name] = handler
        return handler

    return register


def refuse(reason: str, *names: str) -> None:
    """Declare operations that are known and not supported, with the reason told to the user."""
    for name in names:
        _REFUSALS[name] = reason


def find(name: str) -> Handler | None:
    """The handler of the operation `name`, or None."""
    return _HANDLERS.get(name)


def reason(name: str) -> str:
    """Why the operation `name` is refused."""
    return _REFUSALS.get(name, "the lowering does not know this operation")


def known() -> frozenset[str]:
    """The names of all operations that have a handler."""
    return frozenset(_HANDLERS)
