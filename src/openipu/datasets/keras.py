"""`keras.datasets` on machines without a network: the embedded sample, or a word about it."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from openipu import environment


def with_sample(load_data: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Keras' `load_data`, answering from the sample of the dataset `name` when OPENIPU_DATASETS=sample.

    Args:
      load_data: the function of a Keras dataset module.
      name: the function of `openipu.datasets` that has the sample.

    Returns:
      A function with the arguments of `load_data`. Without the variable it is Keras' own; only a failure
      is told differently.
    """
    signature = inspect.signature(load_data)

    @functools.wraps(load_data)
    def load(*args: Any, **kwargs: Any) -> Any:
        if environment.use_sample_datasets():
            signature.bind(*args, **kwargs)  # A wrong argument is as wrong here as it is in Keras.
            from openipu import datasets

            return getattr(datasets, name)()
        try:
            return load_data(*args, **kwargs)
        except Exception as error:
            advice = f"To go on without a download, set OPENIPU_DATASETS=sample: a part of {name} comes with openipu."
            raise told(error, advice) from error

    return load


def told(error: Exception, advice: str) -> Exception:
    """The same error with `advice` in what is printed."""
    # Only an error that is nothing but its message can be made again; others (errno, url, ...) keep their fields.
    if error.args == (str(error),):
        try:
            return type(error)(f"{error}\n{advice}")
        except TypeError:
            pass
    error.add_note(advice)
    return error
