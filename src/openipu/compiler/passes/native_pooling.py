"""The gradient of maxima by a native kernel, where windows overlap.

XLA adds up as many shifted copies as a window has elements there. Where windows lie apart, its form is one loop over
the result and faster than a kernel, as is its maximum: nothing is gained by calling one.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp

from openipu.compiler import native
from openipu.compiler.native import pooling
from openipu.compiler.native.pooling import Pooling, Side
from openipu.compiler.passes.jaxprs import Atom, aval_of
from openipu.compiler.passes.layout import Stored

if TYPE_CHECKING:
    from openipu.compiler.passes.rewriter import Rewriter

# Kernels work on rows of what is stored innermost; in shorter ones XLA's loops are as good.
_SHORTEST_ROW = 8
# Elements to look at below which a call costs more than it saves.
_LEAST_WORK = 1 << 15


def maximum_gradient(rewriter: "Rewriter", gradient: Atom, source: Atom, sides: Sequence[Side]) -> list[Stored] | None:
    """Emits the gradient of maxima over windows; None where a kernel is no better or there is none.

    Args:
      rewriter: the walk.
      gradient: of the maxima.
      source: what they are the maxima of.
      sides: the window, in the program's order of dimensions.
    """
    stored = rewriter.stored(source)
    where = _where(stored, sides)
    if where is None or not _pays(source, sides, math.prod(aval_of(gradient).shape)):
        return None
    given = rewriter.ordered(gradient, stored.order)
    made = rewriter.emit(lambda g, x: pooling.maximum_gradient(g, x, where), given, stored.atom)
    return [Stored(made, stored.order)]


def _pays(source: Atom, sides: Sequence[Side], windows: int) -> bool:
    work = windows * math.prod(side.extent for side in sides)
    overlap = any(side.extent > side.stride for side in sides)
    return aval_of(source).dtype == jnp.float32 and overlap and work >= _LEAST_WORK


def _where(stored: Stored, sides: Sequence[Side]) -> Pooling | None:
    """The windows in the order in which an array is stored; None unless they are two dimensions side by side."""
    if native.library() is None:
        return None
    physical = [sides[dim] for dim in stored.order]
    pooled = [place for place, side in enumerate(physical) if not _trivial(side)]
    # Which of equal values is the first depends on the order of dimensions.
    dims = [stored.order[place] for place in pooled]
    if not 1 <= len(pooled) <= 2 or pooled[-1] - pooled[0] != len(pooled) - 1 or dims != sorted(dims):
        return None
    sizes = aval_of(stored.atom).shape
    inner = math.prod(sizes[pooled[-1] + 1 :])
    if inner < _SHORTEST_ROW:
        return None
    rows, columns = (physical[place] for place in pooled) if len(pooled) == 2 else (_NONE, physical[pooled[0]])
    return Pooling(math.prod(sizes[: pooled[0]]), inner, rows, columns)


_NONE = Side(size=1, windows=1, extent=1, stride=1, low=0)


def _trivial(side: Side) -> bool:
    return (side.extent, side.stride, side.low) == (1, 1, 0) and side.windows == side.size
