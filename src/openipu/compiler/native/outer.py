"""Sums over rows of outer products by the native library: gradients of weights that were used at every time."""

from typing import Any

import attrs
import jax
from jax.core import ShapedArray

from openipu.compiler.native import targets


@attrs.frozen
class Sums:
    """Two arrays that are read as rows, [rows, left] and [rows, right].

    Attributes:
      rows, left, right: sizes.
      left_step, right_step: how far apart the rows of each are.
      turned: the result is stored as [right, left].
      result: its shape.
    """

    rows: int
    left: int
    right: int
    left_step: int
    right_step: int
    turned: bool
    result: tuple[int, ...]

    @property
    def multiplications(self) -> int:
        """How many multiply-adds there are."""
        return self.rows * self.left * self.right


def compute(left: jax.Array, right: jax.Array, sums: Sums) -> jax.Array:
    """For every two columns, the sum of their products; arrays may have any shape."""
    return OUTER.bind(left, right, sums=sums)[0]


def _results(left: Any, right: Any, *, sums: Sums) -> list[ShapedArray]:
    return [ShapedArray(sums.result, left.dtype)]


def _attributes(*, sums: Sums) -> targets.Attributes:
    return {"shape": (sums.rows, sums.left, sums.right, sums.left_step, sums.right_step, int(sums.turned))}


def _lanes(arrays: Any, axes: Any, *, sums: Sums) -> tuple:
    raise NotImplementedError("native sums stand in finished executions, where lanes are dimensions already")


OUTER = targets.define("openipu_outer_sum", _results, _attributes, _lanes)
