"""Whole loops of small steps by the native library."""

from collections.abc import Sequence
from typing import Any

import jax
from jax.core import ShapedArray

from openipu.compiler.native import targets


def run(arrays: Sequence[jax.Array], results: Sequence[ShapedArray], program: Sequence[int]) -> list[jax.Array]:
    """What a loop makes of arrays.

    Args:
      arrays: that it is given.
      results: the types of what it makes.
      program: the loop, as `passes.loops.encoding` describes it.
    """
    return LOOP.bind(*arrays, results=tuple(results), program=tuple(program))


def _results(*arrays: Any, results: tuple[ShapedArray, ...], program: tuple[int, ...]) -> list[ShapedArray]:
    return list(results)


def _attributes(*, results: tuple[ShapedArray, ...], program: tuple[int, ...]) -> targets.Attributes:
    return {"program": program}


def _lanes(arrays: Any, axes: Any, **params: Any) -> tuple:
    raise NotImplementedError("native loops stand in finished executions, where lanes are dimensions already")


LOOP = targets.define("openipu_loop", _results, _attributes, _lanes)
