"""Accumulators of gradients: variables that add up gradients of several calls and are emptied with every update."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.ops.emit import capturing, emit
from openipu.tensorflow.ops.gradient_reduction import GradientAccumulationReductionMethod as Method
from openipu.tensorflow.stablehlo import custom_call

DtypeRule = tf.DType | str | Callable[[tf.Variable], Any] | None


_numbers = itertools.count()


@custom_call("openipu.accumulating")
def _accumulating(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    return operands


def counts_gradients(variable: tf.Variable) -> bool:
    """Whether a variable is the counter of accumulators."""
    return getattr(variable, "_openipu_counts_gradients", False)


def check_loops(occurrences: Mapping[str, int | None]) -> None:
    """Refuse a loop that ends in the middle of an update.

    Args:
      occurrences: how often an execution adds to each group of accumulators, where that is known.
    """
    for group, times in occurrences.items():
        count = int(group.partition("/")[2])
        if times is not None and times > 1 and times % count:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                f"Detected a gradient accumulation operation with {count} number of mini batches inside a loop with "
                f"{times} iterations. The number of iterations must be a multiple of the number of mini batches.",
            )


class Accumulators:
    """One accumulator for each trained variable, and the number of gradients in them.

    Args:
      count: gradients that make one update.
      method: how they become one.
      dtype: of the accumulators: None for the variable's own, a dtype, or a function of the variable.
    """

    def __init__(self, count: int, method: Any = Method.SUM, dtype: DtypeRule = None) -> None:
        self.count = count
        self.method = Method.parse(method)
        self._dtype = dtype
        self._number = next(_numbers)
        self._seen: tf.Variable | None = None
        self._totals: dict[Any, tf.Variable] = {}

    def build(self, variables: Sequence[tf.Variable]) -> None:
        """Make the accumulators that do not exist yet; they live outside of the function that is being traced."""
        with tf.init_scope():
            if self._seen is None:
                seen: Any = tf.Variable(tf.constant(0), trainable=False, name="accumulated_gradients")
                seen._openipu_counts_gradients = True
                self._seen = seen
            for variable in variables:
                if variable.ref() not in self._totals:
                    zeros = tf.zeros(variable.shape, self._dtype_of(variable))
                    self._totals[variable.ref()] = tf.Variable(zeros, trainable=False, name="gradient_accumulator")

    def apply(self, gradients: Sequence[tf.Tensor], variables: Sequence[tf.Variable], update: Callable) -> None:
        """Add gradients; when there are enough, call `update(gradients)` and start anew."""
        self.build(variables)
        assert self._seen is not None
        seen = self._seen
        if capturing():
            # Not used as a number: it tells `check_loops` how often a program comes by.
            seen.assign(emit("accumulating", [seen], [], tf.int32, group=f"{self._number}/{self.count}"))
        totals = [self._totals[variable.ref()] for variable in variables]
        for total, gradient in zip(totals, gradients, strict=True):
            total.assign(self._added(total, gradient, seen))

        def finish() -> None:
            update([tf.cast(total, g.dtype) for total, g in zip(totals, gradients, strict=True)])
            for total in totals:
                total.assign(tf.zeros_like(total))
            seen.assign(0)

        def wait() -> None:
            seen.assign_add(1)

        tf.cond(tf.equal(seen + 1, self.count), finish, wait)

    def _added(self, total: tf.Variable, gradient: tf.Tensor, seen: tf.Variable) -> tf.Tensor:
        if self.method is Method.SUM:
            return total + tf.cast(gradient, total.dtype)
        if self.method is Method.MEAN:
            return total + tf.cast(gradient * tf.cast(1 / self.count, gradient.dtype), total.dtype)
        number = tf.cast(seen, gradient.dtype)
        share = 1 / (number + 1)
        return total * tf.cast(number * share, total.dtype) + tf.cast(gradient * share, total.dtype)

    def _dtype_of(self, variable: tf.Variable) -> tf.DType:
        if self._dtype is None:
            return variable.dtype
        if isinstance(self._dtype, tf.DType | str) or not callable(self._dtype):
            return tf.as_dtype(self._dtype)
        return tf.as_dtype(self._dtype(variable))
