"""What a model in scope remembers about its stages."""

from typing import Any

import attrs


@attrs.define(eq=False)
class StageState:
    """The stages of one model.

    Attributes:
      assignment: one assignment for each call (Sequential: each layer), in post-order; empty when not pipelined.
      valid: whether the assignment still fits; adding a layer to a Sequential model makes it unfit.
      graph: the traced graph of a subclassed model; None until it is traced.
      inputs: the symbolic inputs a subclassed model was built for, in the structure of its first argument.
      saved: the stages a subclassed model was loaded with, of all layers in post-order, until it is built.
      read: whether stage scopes of a subclassed model have been read.
      called: whether its `call` has run, so that it is known whether it opens stages.
    """

    assignment: list[Any] = attrs.Factory(list)
    valid: bool = True
    graph: Any = None
    inputs: Any = None
    saved: list[int] | None = None
    read: bool = False
    called: bool = False


def state_of(model: Any) -> StageState:
    """The stages of an extended model."""
    state = model._ipu
    if state.stages is None:
        state.stages = StageState()
    return state.stages
