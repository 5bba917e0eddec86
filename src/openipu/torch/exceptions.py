"""The exceptions poptorch programs catch."""

import contextlib
import enum
from collections.abc import Iterator

from openipu import errors

PYTHON_ERROR = "poptorch_py_error"


class Error(Exception):
    """Something poptorch refuses or cannot do.

    Attributes:
      message: the bare message.
      type: where the error comes from, `poptorch_py_error` for the Python layer.
      location: where in the backend; empty for the Python layer.
    """

    def __init__(self, message: str = "", *, type: str = PYTHON_ERROR, location: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.type = type
        self.location = location

    def __str__(self) -> str:
        if not self.location:
            return f"'{self.type}': {self.message}"
        return f"{self.location}: '{self.type}': {self.message}"

    def __reduce__(self) -> tuple:
        # Keyword-only attributes are lost by the default, and these errors travel between processes.
        return type(self)._restore, (self.message, self.__dict__)

    @classmethod
    def _restore(cls, message: str, state: dict) -> "Error":
        error = cls(message)
        error.__dict__.update(state)
        return error


class RecoverableError(Error):
    """An error after which the program can go on once `recovery_action` has been taken."""

    def __init__(
        self, message: str = "", *, type: str = PYTHON_ERROR, location: str = "", recovery_action: str = "IPU_RESET"
    ) -> None:
        super().__init__(message, type=type, location=location)
        self.recovery_action = recovery_action

    def __str__(self) -> str:
        return f"{super().__str__()}\nRecovery action required: {self.recovery_action}"


class UnrecoverableError(Error):
    """An error after which the IPUs must be replaced or serviced."""


class UnsupportedError(Error, errors.UnsupportedError):
    """Something openipu does not support, as poptorch programs catch it."""


@contextlib.contextmanager
def as_poptorch() -> Iterator[None]:
    """What the core refuses inside becomes an error that poptorch programs catch."""
    try:
        yield
    except errors.UnsupportedError as error:
        if isinstance(error, Error):
            raise
        raise UnsupportedError(str(error)) from error


class ConfigFileError(Exception):
    """A line of an options file that cannot be understood."""


def createPoptorchError(msg: str) -> Error:
    """An `Error` of the Python layer, not raised."""
    return Error(msg)


class TestErrorType(enum.IntEnum):
    """The kinds of error that `_throwTestError` can raise."""

    __test__ = False  # pytest would collect the class by its name

    Poptorch = 0
    Popart = 1
    PopartInternal = 2
    Poplibs = 3
    PoplarUnrecoverable = 4
    PoplarUnknown = 5
    PoplarRecoverableFullReset = 6
    PoplarLinkError = 7


_TEST_ERRORS: dict[TestErrorType, tuple[type[Error], str]] = {
    TestErrorType.Poptorch: (Error, "poptorch_cpp_error"),
    TestErrorType.Popart: (Error, "popart_exception"),
    TestErrorType.PopartInternal: (Error, "popart_internal_exception"),
    TestErrorType.Poplibs: (Error, "poplibs_exception"),
    TestErrorType.PoplarUnrecoverable: (UnrecoverableError, "poplar_unrecoverable_runtime_error"),
    TestErrorType.PoplarUnknown: (Error, "poplar_unknown_runtime_error"),
    TestErrorType.PoplarRecoverableFullReset: (RecoverableError, "poplar_recoverable_runtime_error"),
    TestErrorType.PoplarLinkError: (Error, "poplar_link_error"),
}


def throw_test_error(kind: TestErrorType) -> None:
    """Raises an error of the given kind, for programs that test how they handle them."""
    cls, name = _TEST_ERRORS[TestErrorType(kind)]
    error = cls("This is a test error", type=name, location="In openipu")
    if isinstance(error, RecoverableError):
        error.recovery_action = "FULL_RESET"
    raise error
