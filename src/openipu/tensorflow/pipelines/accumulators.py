"""Sums over the iterations of a loop whose terms become known only while its body is traced."""

import itertools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import tensorflow as tf

from openipu.tensorflow.ops.emit import emit
from openipu.tensorflow.ops.gradient_reduction import GradientAccumulationReductionMethod as Method
from openipu.tensorflow.stablehlo import holding_call


class LoopAccumulators:
    """Adds tensors up in the body of a loop, and gives the sums after it; they are zero before the first iteration.

    Args:
      name: tells these sums from others in the same program.
      count: iterations of the loop.
      method: how the tensors of all iterations become one.
    """

    def __init__(self, name: str, count: int, method: Method = Method.SUM) -> None:
        self._name = name
        self._count = count
        self._method = method
        self._sums: list[tuple[str, tf.TensorSpec]] = []

    def add(self, token: tf.Tensor, values: Sequence[tf.Tensor], dtypes: Sequence[tf.DType]) -> tf.Tensor:
        """Add values of one iteration, in the body.

        Args:
          token: an int32 scalar that the iterations hand on: the number of the iteration, counted from 0.
          values: one for each sum.
          dtypes: of the sums.

        Returns:
          The token; what uses it comes after the addition.
        """
        self._sums = []
        iteration = token
        for value, dtype, number in zip(values, dtypes, itertools.count()):
            name = f"{self._name}_{number}"
            config = {"zeros": [value.shape.as_list(), dtype.name], "method": self._method.name, "count": self._count}
            token = emit("accumulate", [token, iteration, value], [], tf.int32, holds=name, **config)
            self._sums.append((name, tf.TensorSpec(value.shape, dtype)))
        return token

    def take(self, token: tf.Tensor) -> list[tf.Tensor]:
        """The sums, after the loop whose last token this is; the next loop starts from zero again."""
        return [emit("accumulated", [token], s.shape, s.dtype, holds=name) for name, s in self._sums]


@holding_call("openipu.accumulate")
def _accumulate(operands: list, config: dict[str, Any], kinds: tuple, held: dict[str, Any]) -> list:
    token, iteration, value = operands
    total = held[config["holds"]]
    if config["method"] == "MEAN":
        value = value * value.dtype.type(1 / config["count"])
    elif config["method"] == "RUNNING_MEAN":
        seen = jnp.asarray(iteration, value.dtype)
        share = 1 / (seen + 1)
        total, value = total * (seen * share).astype(total.dtype), value * share
    held[config["holds"]] = total + value.astype(total.dtype)
    return [token + np.int32(0)]


@holding_call("openipu.accumulated")
def _accumulated(operands: list, config: dict[str, Any], kinds: tuple, held: dict[str, Any]) -> list:
    total = held[config["holds"]]
    held[config["holds"]] = jnp.zeros_like(total)
    return [total]
