"""Recurrent layers of the native library: the time loops of LSTM and GRU and of their gradients."""

from collections.abc import Sequence
from typing import Any

import attrs
import jax
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive

from openipu.compiler.native import targets


@attrs.frozen
class Loop:
    """A layer over time.

    Attributes:
      target: the function of the library.
      times, batch, units: sizes.
      reversed: from the last time to the first.
      masked: the last operand says where the state changes.
      features: of the inputs, where the loop multiplies them itself; 0 where it is given their product.
    """

    target: str
    times: int
    batch: int
    units: int
    reversed: bool = False
    masked: bool = False
    features: int = 0

    @property
    def shared(self) -> tuple[int, ...]:
        """Which operands are weights, the same for all lanes."""
        return (*_SHARED[self.target], *(_OF_INPUTS if self.features else ()))

    @property
    def results(self) -> list[tuple[int, ...]]:
        """The shapes of what it makes."""
        over_time, state = (self.times, self.batch, self.units), (self.batch, self.units)
        if self.target.endswith("forward"):
            return [over_time] * _FORWARD_RESULTS[self.target]
        gates = _GATES[self.target]
        return [*[state] * (gates - 2), (self.times, self.batch, gates * self.units)]


# Which operands are weights, and which are those of the inputs besides.
_SHARED = {
    "openipu_lstm_forward": (3,),
    "openipu_lstm_backward": (9,),
    "openipu_gru_forward": (2, 3),
    "openipu_gru_backward": (7,),
}
_OF_INPUTS = (4, 5)
_FORWARD_RESULTS = {"openipu_lstm_forward": 7, "openipu_gru_forward": 5}
# A state of two arrays for four gates, of one for three.
_GATES = {"openipu_lstm_backward": 4, "openipu_gru_backward": 3}


def run(loop: Loop, operands: Sequence[jax.Array]) -> list[jax.Array]:
    """What a loop makes, in the order that `kernels/recurrent.cc` says."""
    return PRIMITIVES[loop.target].bind(*operands, loop=loop, lanes=0)


def _results(*operands: Any, loop: Loop, lanes: int) -> list[ShapedArray]:
    lead = (lanes,) if lanes else ()
    return [ShapedArray(lead + shape, operands[0].dtype) for shape in loop.results]


def _attributes(*, loop: Loop, lanes: int) -> targets.Attributes:
    shape = (max(lanes, 1), loop.times, loop.batch, loop.units, loop.features)
    return {"shape": shape, "reversed": int(loop.reversed), "masked": int(loop.masked)}


def _lanes(arrays: Sequence[jax.Array], axes: Sequence[int | None], *, loop: Loop, lanes: int) -> tuple:
    primitive = PRIMITIVES[loop.target]
    if any(axes[index] is not None for index in loop.shared):
        moved, _ = targets.lanes_first(arrays, axes)
        return lax.map(lambda each: primitive.bind(*each, loop=loop, lanes=lanes), moved), [0] * len(loop.results)
    own = [index for index in range(len(arrays)) if index not in loop.shared]
    moved, size = targets.lanes_first([arrays[i] for i in own], [axes[i] for i in own])
    given = list(arrays)
    for index, array in zip(own, moved, strict=True):
        given[index] = lax.reshape(array, (size * lanes, *array.shape[2:])) if lanes else array
    made = primitive.bind(*given, loop=loop, lanes=size * max(lanes, 1))
    if lanes:
        made = [lax.reshape(m, (size, lanes, *m.shape[1:])) for m in made]
    return made, [0] * len(made)


PRIMITIVES: dict[str, Primitive] = {target: targets.define(target, _results, _attributes, _lanes) for target in _SHARED}
