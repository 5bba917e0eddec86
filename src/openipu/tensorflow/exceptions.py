"""The exceptions that programs of TensorFlow catch."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from openipu import errors


class UnsupportedError(errors.UnsupportedError, tf.errors.UnimplementedError):
    """Something openipu does not support; programs may catch it as what TensorFlow raises for such things."""

    def __init__(self, message: str) -> None:
        tf.errors.UnimplementedError.__init__(self, None, None, message)

    def __reduce__(self) -> tuple:
        return type(self), (self.message,)


@contextlib.contextmanager
def as_tensorflow() -> Iterator[None]:
    """What the core refuses inside becomes an error that programs of TensorFlow catch."""
    try:
        yield
    except errors.UnsupportedError as error:
        if isinstance(error, tf.errors.OpError):
            raise
        raise UnsupportedError(str(error)) from error
