"""Functions that are compiled once and called from several places."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = ["outlined_function"]


def outlined_function(
    func: Callable | None = None,
    unique_sharding: bool = False,
    keep_input_layouts: bool | None = None,
    name: str | None = None,
) -> Callable:
    """Marks a function whose code all its calls are to share; it computes what a plain call does.

    Sharing saved memory for code on the tiles. XLA decides about it here, so the options change nothing.

    Args:
      func: the function; without it the result is a decorator.
      unique_sharding, keep_input_layouts: accepted for compatibility.
      name: of the operations inside.
    """

    def decorate(function: Callable) -> Callable:
        title = name or getattr(function, "__name__", "outlined").strip("<>")

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with tf.name_scope(title):
                return function(*args, **kwargs)

        return call

    return decorate if func is None else decorate(func)
