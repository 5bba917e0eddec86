"""TensorFlow variables whose value lives on the device while programs train it."""

import functools
import weakref
from typing import Any

import numpy as np
import tensorflow as tf

from openipu.runtime import Resident, bring_all_home, held
from openipu.tensorflow.boundary import raw_handle, watch_functions, watch_handle

_KEY = "_openipu_resident"
_created: "weakref.WeakValueDictionary[int, tf.Variable]" = weakref.WeakValueDictionary()


def resident(variable: tf.Variable) -> Resident:
    """The resident value of a variable; from now on every eager use of the variable brings it home first.

    Every way to a variable's value leads through its `_handle`, in Python and in TensorFlow's C++ fast path. So the
    variable's class is replaced by one where `_handle` is a property that brings the value home.
    """
    found = variable.__dict__.get(_KEY)
    if found is None:
        _watch_functions()
        handle = raw_handle(variable)
        dtype = variable.dtype

        def write(value: np.ndarray) -> None:
            # TensorFlow dies of an exception that a signal raises while it makes a tensor of a value.
            with held():
                tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(value, dtype))

        def read() -> np.ndarray:
            return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype).numpy()

        found = Resident(read=read, write=write)
        vars(variable)[_KEY] = found
        watch_handle(variable, _bring_home)
    return found


def live_elsewhere(variable: tf.Variable, value: Resident) -> None:
    """Let another value than the variable's own be used by programs."""
    vars(variable)[_KEY] = value


def remember(variable: tf.Variable) -> None:
    """Make a variable known by its handle: some optimizers' operations take handles and never read the variable."""
    _created[id(raw_handle(variable))] = variable


def by_handle(handle: tf.Tensor) -> tf.Variable | None:
    """The variable with this handle, among those made in the scope of a strategy."""
    variable = _created.get(id(handle))
    return variable if variable is not None and raw_handle(variable) is handle else None


def dtype_on_device(variable: tf.Variable) -> np.dtype:
    """The NumPy dtype of a variable's value."""
    return np.dtype(variable.dtype.as_numpy_dtype)


def _bring_home(variable: Any) -> None:
    found = variable.__dict__.get(_KEY)
    # While a function is traced nothing is read: the function's later calls are watched.
    if found is not None and found.away and tf.executing_eagerly():
        found.bring_home()


@functools.cache
def _watch_functions() -> None:
    """A traced function holds handles of its own, so values come home before any such function is called."""

    def come_home() -> None:
        if tf.executing_eagerly():
            bring_all_home()

    watch_functions(come_home)
