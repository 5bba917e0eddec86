"""Functions of the user's: called with those of their arguments that they take."""

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def arguments_of(function: Callable) -> list[str]:
    """The names of a function's arguments."""
    return list(inspect.signature(function).parameters)


def call(function: Callable, *args: Any, **offered: Any) -> Any:
    """Call a function with what it takes of what is offered."""
    taken = arguments_of(function)
    return function(*args, **{name: value for name, value in offered.items() if name in taken})


def dataset_of(input_fn: Callable, mode: str, params: dict[str, Any], config: Any) -> tf.data.Dataset:
    """The dataset that an input function makes."""
    if not callable(input_fn):
        raise TypeError(f"input_fn must be a function that returns a tf.data.Dataset. Received: {input_fn!r}.")
    made = call(input_fn, mode=mode, params=params, config=config, input_context=None)
    if not isinstance(made, tf.data.Dataset):
        raise ValueError("input_fn must return Dataset")
    return made


def features_and_labels(args: tuple, named: dict[str, Any]) -> tuple[Any, Any]:
    """An element of the dataset as the two arguments of a model function."""
    if named:
        return named, None
    if len(args) not in (1, 2):
        raise ValueError(
            "Elements of the dataset must be features, or a pair of features and labels. "
            f"Received: a tuple of {len(args)}."
        )
    return args[0], args[1] if len(args) == 2 else None
