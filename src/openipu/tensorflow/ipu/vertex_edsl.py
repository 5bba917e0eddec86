"""Expressions for `codelet_expression_op`: functions of tensors; the classes behind them are refused when made."""

import enum
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from openipu.tensorflow.ipu import refused

globals().update(refused.declare(__name__))


class BaseType(enum.IntEnum):
    """Element types of a codelet."""

    Unknown = 0
    Int16 = 1
    Int32 = 2
    Float16 = 3
    Float32 = 4
    Sequence = 5


def constant(value: Any) -> Any:
    """A number in an expression."""
    return value


def let(expr: Any, f: Callable[[Any], Any]) -> Any:
    """The expression `f` of a value that is computed once."""
    return f(expr)


def condition(pred: Any, a: Any, b: Any) -> tf.Tensor:
    """`a` where `pred` holds, `b` elsewhere."""
    return tf.where(pred, a, b)
