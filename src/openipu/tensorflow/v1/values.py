"""Values of a graph's variables: the session's copy, and the device's, which lives on between runs."""

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from openipu.runtime import Resident

# Runs operations and tensors of a graph in a session, with feeds, past all that openipu does.
Run = Callable[[Any, Sequence[tf.Operation], Sequence[tf.Tensor], dict[tf.Tensor, np.ndarray]], list[np.ndarray]]


class Value:
    """The value of one variable of a graph.

    Attributes:
      variable: the variable.
      reading: a tensor that reads the session's copy.
      resident: the device's value, shared by all programs of the graph.
    """

    def __init__(self, variable: Any) -> None:
        self.variable = variable
        self.reading = variable.read_value()
        self.resident = Resident(self._host_value, self._keep)
        self._host: np.ndarray | None = None
        self._behind = False
        self._session: weakref.ref | None = None

    def belongs_to(self, session: Any) -> bool:
        """Whether the device has the value of this session."""
        return self._session is not None and self._session() is session

    def assign_to(self, session: Any) -> None:
        """The value is this session's from now on."""
        self._session = weakref.ref(session)

    @property
    def session(self) -> Any:
        """The session whose value the device has, or None."""
        return None if self._session is None else self._session()

    @property
    def newer(self) -> bool:
        """Whether the session lacks this value."""
        return self.resident.newer or self._behind

    def replace(self, value: np.ndarray | None) -> None:
        """Another value than the device's, of no session in particular; what only the device has is lost."""
        self.resident.forget_device()
        self._host = None if value is None else np.asarray(value)
        self._session, self._behind = None, False

    def forget(self) -> None:
        """The session's value is not known any more; what only the device has is lost."""
        self.replace(None)

    def settle(self) -> None:
        """The session has got this value."""
        self._behind = False

    def read(self) -> np.ndarray:
        """The value; the device keeps it."""
        self.resident.refresh_host()
        return self._host_value()

    def _host_value(self) -> np.ndarray:
        assert self._host is not None, "the session has not handed its value over"
        return self._host

    def _keep(self, value: np.ndarray) -> None:
        # It may also come home because others want all values home: the session does not know.
        self._host, self._behind = value, True


def hand_over(values: Iterable[Value], session: Any, run: Run) -> None:
    """Give devices the values of a session, unless they have them already."""
    others = [value for value in values if not value.belongs_to(session)]
    if not others:
        return
    for other in {id(s): s for s in (value.session for value in others) if s is not None}.values():
        take_back([value for value in others if value.session is other], run)
    for value, host in zip(others, run(session, [], [value.reading for value in others], {}), strict=True):
        value.replace(host)
        value.assign_to(session)


def take_back(values: Iterable[Value], run: Run) -> None:
    """Give sessions the values that only devices have; those stay there."""
    newer = [value for value in values if value.newer and value.session is not None]
    for session in {id(s): s for s in (value.session for value in newer)}.values():
        mine = [value for value in newer if value.session is session]
        # As `Variable.load` does it, without operations of its own: the graph may be finalised.
        setters = [value.variable.initializer for value in mine]
        run(session, setters, [], {op.inputs[1]: value.read() for op, value in zip(setters, mine, strict=True)})
        for value in mine:
            value.settle()
