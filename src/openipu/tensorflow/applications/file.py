"""An application in a file: what it takes and gives as JSON, its executable, and the values that were frozen."""

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from openipu.compiler import archive

_EXECUTABLE, _VALUES = "executable", "values.npz"
_FORMAT = "openipu application 1"


@attrs.frozen
class Signature:
    """One value that an application takes or gives: its name, its shape and its dtype."""

    name: str
    shape: tuple[int, ...] = attrs.field(converter=tuple)
    dtype: str


def _signatures(given: Sequence[Any]) -> tuple[Signature, ...]:
    return tuple(s if isinstance(s, Signature) else Signature(**s) for s in given)


@attrs.frozen
class Record:
    """What an application is.

    Attributes:
      name: of the function.
      replicas: copies of it that run side by side.
      steps: elements that one execution takes from each infeed, for each replica; None for one without infeeds.
      arguments: of the function.
      shared, local: variables that it only reads, and that it assigns.
      infeeds, outfeeds: the parts of an element, over all queues.
      results: of the function.
      draws: whether it uses random numbers.
    """

    name: str
    replicas: int
    steps: int | None
    arguments: tuple[Signature, ...] = attrs.field(converter=_signatures)
    shared: tuple[Signature, ...] = attrs.field(converter=_signatures)
    local: tuple[Signature, ...] = attrs.field(converter=_signatures)
    infeeds: tuple[Signature, ...] = attrs.field(converter=_signatures)
    outfeeds: tuple[Signature, ...] = attrs.field(converter=_signatures)
    results: tuple[Signature, ...] = attrs.field(converter=_signatures)
    draws: bool = False

    @property
    def variables(self) -> tuple[Signature, ...]:
        """All variables."""
        return (*self.shared, *self.local)


@attrs.frozen(eq=False)
class Application:
    """The content of a file: what it is, an executable as the cache has them, and values of variables by place."""

    record: Record
    executable: bytes
    values: Mapping[int, np.ndarray]


def write(path: Path, application: Application) -> None:
    """Write a file as a whole."""
    values = io.BytesIO()
    named: dict[str, Any] = {str(place): value for place, value in application.values.items()}
    np.savez(values, **named)
    members = {_EXECUTABLE: application.executable, _VALUES: values.getvalue()}
    archive.write(path, {"format": _FORMAT, **attrs.asdict(application.record)}, members)


def read(filename: str | os.PathLike) -> Application:
    """Read and check a file.

    Raises:
      FileNotFoundError: there is none.
      ValueError: it is no application, or was changed.
    """
    try:
        described, members = archive.read(filename)
        if described.pop("format") != _FORMAT:
            raise ValueError("its format is another one")
        with np.load(io.BytesIO(members[_VALUES]), allow_pickle=False) as stored:
            values = {int(place): stored[place] for place in stored.files}
        return Application(Record(**described), members[_EXECUTABLE], values)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"There is no application {os.fspath(filename)!r}. Make one with "
            "application_compile_op.experimental_application_compile_op."
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{os.fspath(filename)!r} is no application that was compiled by openipu: {error}.") from error
