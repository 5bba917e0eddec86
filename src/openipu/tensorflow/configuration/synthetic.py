"""Synthetic data, for measuring: what TF_POPLAR_FLAGS keeps from going between host and device.

What a dataset yields is the infeed, what Keras brings back the outfeed. Variables are parameters, and so are the
arguments and results of a function given to `strategy.run`.
"""

from openipu import environment
from openipu.runtime import Kind, Synthetic


def instead_of(category: str) -> bool:
    """Whether the flags ask for data of this category ("infeed", "outfeed", ...) to stay where it is."""
    return category in environment.poplar_flags().synthetic_categories


def of_model() -> Synthetic:
    """What is synthetic when a Keras model runs."""
    return _synthetic(feeds="infeed", results="outfeed")


def of_function() -> Synthetic:
    """What is synthetic when `strategy.run` runs a function."""
    return _synthetic(feeds="parameters", results="parameters")


def _synthetic(feeds: str, results: str) -> Synthetic:
    return Synthetic(_kind(), instead_of(feeds), instead_of("parameters"), instead_of(results))


def _kind() -> Kind:
    """What the initializer names; zeros without one, where the original leaves the memory as it was."""
    initializer = environment.poplar_flags().synthetic_data_initializer
    if initializer in ("random", "uniform", "normal"):
        return "normal" if initializer == "normal" else "uniform"
    return float(initializer or 0)
