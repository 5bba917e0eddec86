"""One environment variable: its name, its valid values, its meaning, and how it is read."""

import difflib
import functools
import logging
import os
from typing import NamedTuple

PREFIX = "OPENIPU_"

_declared: "dict[str, Variable]" = {}


class Variable(NamedTuple):
    """A variable that openipu reads.

    Args:
      name: what the user sets.
      group: the heading under which the page shows it.
      meaning: one sentence.
      default: what an unset or empty variable means.
      valid: all values a user may give; empty where any text is a value.
      values: what the page says of the values where `valid` is empty.
    """

    name: str
    group: str
    meaning: str
    default: str = ""
    valid: tuple[str, ...] = ()
    values: str = "text"

    def read(self) -> str:
        """The value, in the spelling of `valid`; refused if it is not one of them."""
        if self.name.startswith(PREFIX):
            _warn_of_unknown_names()
        given = os.environ.get(self.name, "").strip()
        if not given:
            return self.default
        if not self.valid:
            return given
        for value in self.valid:
            if given.lower() == value.lower():
                return value
        raise ValueError(f"{self.name} must be one of: {', '.join(self.valid)}. Received: {self.name}={given!r}.")

    def is_on(self) -> bool:
        """The value of a variable whose valid values are those of `BOOLEAN`."""
        return self.read() in ("1", "true")

    def is_given(self) -> bool:
        """Whether the user has set it to anything."""
        return bool(os.environ.get(self.name, "").strip())


BOOLEAN = ("0", "1", "false", "true")


def declare(
    name: str, group: str, meaning: str, default: str = "", valid: tuple[str, ...] = (), values: str = "text"
) -> Variable:
    """Adds a variable to the table; the arguments are those of `Variable`."""
    _declared[name] = Variable(name, group, meaning, default, valid, values)
    return _declared[name]


def declared() -> tuple[Variable, ...]:
    """Every variable that openipu reads, in the order of declaration."""
    return tuple(_declared.values())


def integer(name: str, default: int) -> int:
    """The value of an environment variable that must be an integer; an unset or empty one means `default`."""
    given = os.environ.get(name, "").strip()
    if not given:
        return default
    try:
        return int(given)
    except ValueError:
        raise ValueError(f"{name} must be an integer. Received: {name}={given!r}.") from None


def for_child(**changes: str) -> dict[str, str]:
    """The variables of this process with `changes`: what a process that it starts is given."""
    return {**os.environ, **changes}


def unknown_names() -> dict[str, str]:
    """Variables that are set and look like openipu's but are not, each with a word of advice."""
    ours = [name for name in _declared if name.startswith(PREFIX)]
    found = {}
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in _declared:
            near = difflib.get_close_matches(name, ours, n=1)
            advice = f"Did you mean {near[0]}?" if near else f"Known are: {', '.join(ours)}."
            found[name] = f"{name} is set, but openipu has no such variable. {advice}"
    return found


@functools.cache
def _warn_of_unknown_names() -> None:
    for text in unknown_names().values():
        logging.getLogger("openipu.environment").warning(text)
