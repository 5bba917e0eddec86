"""Keras 2's Nadam in programs for the IPU: its momentum schedule goes one step an update, as it does eagerly."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf


class _Computed:
    """Stands for the number that Keras 2 counts in Python how often it has computed the schedule.

    In a trace that number is a constant, so in stock Keras 2 every variable after the second multiplies the schedule
    again, and by which ones depends on how often the function was traced. What is asked of the number, whether this
    update has the schedule already, is known while tracing: the first variable computes it.
    """

    def __init__(self, already: bool = False) -> None:
        self._already = already

    def __eq__(self, iteration: object) -> Any:
        return tf.constant(self._already)

    def __add__(self, one: int) -> "_Computed":
        return _Computed(already=True)

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def once_an_update(apply: Callable, capturing: Callable[[], bool]) -> Callable:
    """Nadam's way to apply all gradients, with a schedule that knows whether it was computed in this update.

    Args:
      apply: the original.
      capturing: whether a program for the IPU is being traced; otherwise the original is left alone.
    """

    @functools.wraps(apply)
    def applied(self: Any, grads_and_vars: Any) -> Any:
        if not capturing():
            return apply(self, grads_and_vars)
        count, self._u_product_counter = self._u_product_counter, _Computed()
        try:
            return apply(self, grads_and_vars)
        finally:
            self._u_product_counter = count

    return applied
