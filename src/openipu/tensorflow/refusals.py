"""Functions and classes that exist under their names and say, when they are used, that they are not supported."""

from typing import Any, NoReturn

import attrs

from openipu.compatibility import noted, refused
from openipu.tensorflow.exceptions import UnsupportedError


@attrs.frozen
class Refused:
    """Names that share a reason.

    Attributes:
      because: what is missing, as the end of "… is not supported: ".
      instead: the way round, a sentence.
      functions: refused when they are called.
      classes: refused when an object is made.
    """

    because: str
    instead: str
    functions: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


def refused_function(name: str, entry: Refused) -> Any:
    """A function that refuses every call."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(f"{name} is not supported: {entry.because}. {entry.instead}")

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    refuse.__doc__ = f"Not supported: {entry.because}."
    return noted(refuse, refused(entry.because))


def refused_class(module: str, name: str, entry: Refused) -> type:
    """A class that can be named in annotations and `isinstance`, but has no objects."""
    refuse = refused_function(name, entry)
    found = type(name.rpartition(".")[2], (), {"__new__": refuse, "__doc__": refuse.__doc__, "__module__": module})
    return noted(found, refused(entry.because))
