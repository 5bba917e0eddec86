"""TensorFlow variables whose value lives on the device while programs train it."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import concrete_function, polymorphic_function
from tensorflow.python.ops import gen_resource_variable_ops as raw

from openipu.runtime import Resident, bring_all_home

_KEY = "_openipu_resident"
_adopted_classes: dict[type, type] = {}
_created: "weakref.WeakValueDictionary[int, tf.Variable]" = weakref.WeakValueDictionary()


def resident(variable: tf.Variable) -> Resident:
    """The resident value of a variable; from now on every eager use of the variable brings it home first.

    Every way to a variable's value leads through its `_handle`, in Python and in TensorFlow's C++ fast path. So the
    variable's class is replaced by one where `_handle` is a property that brings the value home.
    """
    found = variable.__dict__.get(_KEY)
    if found is None:
        _watch_functions()
        handle = variable.__dict__["_handle"]
        dtype = variable.dtype

        def write(value: np.ndarray) -> None:
            raw.assign_variable_op(handle, tf.constant(value, dtype))

        found = Resident(read=lambda: raw.read_variable_op(handle, dtype).numpy(), write=write)
        vars(variable)[_KEY] = found
        variable.__class__ = _adopted_class(variable.__class__)
    return found


def remember(variable: tf.Variable) -> None:
    """Make a variable known by its handle: some optimizers' operations take handles and never read the variable."""
    _created[id(raw_handle(variable))] = variable


def by_handle(handle: tf.Tensor) -> tf.Variable | None:
    """The variable with this handle, among those made in the scope of a strategy."""
    variable = _created.get(id(handle))
    return variable if variable is not None and raw_handle(variable) is handle else None


def raw_handle(variable: tf.Variable) -> tf.Tensor:
    """The variable's handle, without bringing its value home."""
    return variable.__dict__["_handle"]


def dtype_on_device(variable: tf.Variable) -> np.dtype:
    """The NumPy dtype of a variable's value."""
    return np.dtype(variable.dtype.as_numpy_dtype)


def _adopted_class(original: type) -> type:
    if original not in _adopted_classes:
        names = {"_handle": property(_get_handle, _set_handle), "__module__": original.__module__}
        adopted = type(original.__name__, (original,), names)
        adopted.__qualname__ = original.__qualname__
        _adopted_classes[original] = adopted
    return _adopted_classes[original]


def _get_handle(variable: Any) -> Any:
    state = variable.__dict__
    found = state.get(_KEY)
    # While a function is traced nothing is read: the function's later calls are watched.
    if found is not None and found.away and context.executing_eagerly():
        found.bring_home()
    return state["_handle"]


def _set_handle(variable: Any, handle: Any) -> None:
    variable.__dict__["_handle"] = handle


@functools.cache
def _watch_functions() -> None:
    """A traced function holds handles of its own, so values come home before any such function is called."""

    def watched(call: Callable) -> Callable:
        @functools.wraps(call)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            if context.executing_eagerly():
                bring_all_home()
            return call(self, *args, **kwargs)

        return wrapper

    for owner in (polymorphic_function.Function, concrete_function.ConcreteFunction):
        owner.__call__ = watched(owner.__call__)
