"""Time loops as calls with a name, so that a native kernel can take the place of one that it knows."""

from collections.abc import Callable

import jax

from openipu.compiler.recurrent.cells import GRU, LSTM, Arrays, Cell

FORWARD, BACKWARD = "forward", "backward"
_REVERSED = "_reversed"


def named(loop: Callable, cell: Cell, direction: str, reverse: bool, inputs: Arrays, weights: Arrays) -> Callable:
    """The loop as a call of its own, if it is one of those that have a name; it computes the same either way.

    Args:
      loop: what goes over all times.
      cell: what happens at one time.
      direction: FORWARD, or BACKWARD for the gradient.
      reverse: whether the layer goes from the last time to the first.
      inputs, weights: of the cell.
    """
    kind = _kind(cell, inputs, weights)
    if kind is None:
        return loop
    loop.__name__ = f"openipu_{kind}_{direction}{_REVERSED if reverse else ''}"
    return jax.jit(loop)


def multiplies(cell: Cell, inputs: Arrays, weights: Arrays) -> bool:
    """Whether the loop of a cell may be given the layer's inputs, and makes the gates' share of them itself."""
    return _kind(cell, inputs, weights) == "lstm"


def target(name: str) -> tuple[str, bool]:
    """The name of a call without what tells its order of time, and whether that is reversed."""
    return name.removesuffix(_REVERSED), name.endswith(_REVERSED)


def _kind(cell: Cell, inputs: Arrays, weights: Arrays) -> str | None:
    if cell == LSTM() and len(weights) == 1:
        return "lstm"
    return "gru" if cell == GRU() and len(inputs) == 1 else None
