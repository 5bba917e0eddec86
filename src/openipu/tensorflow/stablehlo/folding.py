"""NumPy versions of the integer and shape arithmetic that is computed while lowering, not in the program."""

from collections.abc import Callable
from typing import Any

import numpy as np

from openipu.tensorflow.stablehlo.parsed.graph import Op


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    def evaluate(op: Op, *values: np.ndarray) -> Any:
        return function(*values)

    return evaluate


def _numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    # On booleans these mean or, and: left to the handler, which knows.
    def evaluate(op: Op, *values: np.ndarray) -> Any:
        return None if values[0].dtype == np.bool_ else function(*values)

    return evaluate


def _compare(op: Op, a: np.ndarray, b: np.ndarray) -> Any:
    functions = {
        "EQ": np.equal,
        "NE": np.not_equal,
        "LT": np.less,
        "LE": np.less_equal,
        "GT": np.greater,
        "GE": np.greater_equal,
    }
    if op.attr("compare_type") == "TOTALORDER":
        return None
    return functions[op.attr("comparison_direction")](a, b)


def _convert(op: Op, x: np.ndarray) -> Any:
    # Out-of-range floats convert differently in NumPy and XLA.
    if x.dtype.kind not in "biu" and op.type.dtype.kind in "biu":
        return None
    return x.astype(op.type.dtype)


def _shift(left: bool, logical: bool) -> Callable[..., Any]:
    def evaluate(op: Op, x: np.ndarray, by: np.ndarray) -> Any:
        bits = 8 * x.dtype.itemsize
        if np.any((by.astype(np.int64) < 0) | (by.astype(np.int64) >= bits)):
            return None
        if left:
            return np.left_shift(x, by)
        if logical:
            unsigned = np.dtype(f"u{x.dtype.itemsize}")
            return np.right_shift(x.view(unsigned), by.view(unsigned)).view(x.dtype)
        return np.right_shift(x, by)

    return evaluate


def _reshape(op: Op, x: np.ndarray) -> Any:
    return x.reshape(op.type.shape)


def _concatenate(op: Op, *values: np.ndarray) -> Any:
    return np.concatenate(values, op.attr("dimension"))


def _slice(op: Op, x: np.ndarray) -> Any:
    bounds = zip(op.attr("start_indices"), op.attr("limit_indices"), op.attr("strides"), strict=True)
    return x[tuple(slice(*bound) for bound in bounds)]


def _select(op: Op, which: np.ndarray, a: np.ndarray, b: np.ndarray) -> Any:
    return np.where(which, a, b)


def _constant(op: Op) -> Any:
    return op.attr("value")


FOLDS: dict[str, Callable[..., Any]] = {
    "stablehlo.add": _numbers(np.add),
    "stablehlo.subtract": _numbers(np.subtract),
    "stablehlo.multiply": _numbers(np.multiply),
    "stablehlo.maximum": _plain(np.maximum),
    "stablehlo.minimum": _plain(np.minimum),
    "stablehlo.and": _plain(np.bitwise_and),
    "stablehlo.or": _plain(np.bitwise_or),
    "stablehlo.xor": _plain(np.bitwise_xor),
    "stablehlo.not": _plain(np.invert),
    "stablehlo.shift_left": _shift(left=True, logical=False),
    "stablehlo.shift_right_logical": _shift(left=False, logical=True),
    "stablehlo.shift_right_arithmetic": _shift(left=False, logical=False),
    "stablehlo.compare": _compare,
    "stablehlo.convert": _convert,
    "stablehlo.reshape": _reshape,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.slice": _slice,
    "stablehlo.select": _select,
    "stablehlo.constant": _constant,
}
