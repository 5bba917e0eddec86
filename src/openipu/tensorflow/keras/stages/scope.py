"""`PipelineStage`: layers constructed or called inside belong to a stage."""

import inspect
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from openipu.tensorflow import strategy as strategies

# Where the stage is written: on nodes (one call of a layer), on layers, and on models whose `call` opens stages.
_TAG = "_ipu_stage"
_OPENS = "_ipu_opens_stages"

_active: int | None = None
_opened = 0


class PipelineStage:
    """Layers called inside the context, or else constructed inside it, belong to the stage.

    Args:
      stage: the pipeline stage, counted from 0.
    """

    def __init__(self, stage: int) -> None:
        if not isinstance(stage, int) or isinstance(stage, bool):
            raise ValueError(f"stage must be an integer, counted from 0. Received: stage={stage!r}.")
        if stage < 0:
            # The original never filled in its format; programs that look for the text find it.
            raise ValueError("%d is not a valid pipeline stage.")
        self._stage = stage
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> "PipelineStage":
        global _active, _opened
        if strategies.current() is None:
            raise RuntimeError("PipelineStage may only be used from within an IPUStrategy context.")
        if _active is not None:
            raise RuntimeError("Pipeline stages must not be nested.")
        _active = self._stage
        _opened += 1
        for flavour in _flavours():
            for owner in flavour.STAGED:
                self._undo.append(_hook(owner, self._stage))
            for model in flavour.models_being_called():
                mark(model)
        return self

    def __exit__(
        self,
        _exception_type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        global _active
        while self._undo:
            self._undo.pop()()
        _active = None


def opened() -> int:
    """How many stages this process has opened so far."""
    return _opened


def mark(model: Any) -> None:
    """Note that the model's `call` opens stages."""
    model.__dict__[_OPENS] = True


def tag(thing: Any) -> int | None:
    """The stage in which a layer was constructed, or a node made."""
    return thing.__dict__.get(_TAG)


def opens_stages(model: Any) -> bool:
    """Whether the model's `call` has been seen to open stages."""
    return model.__dict__.get(_OPENS, False)


def _flavours() -> list[Any]:
    found = []
    if "keras" in sys.modules:
        from openipu.tensorflow.keras.stages import keras3

        found.append(keras3)
    if "tf_keras" in sys.modules:
        from openipu.tensorflow.keras.stages import keras2

        found.append(keras2)
    return found


def _hook(owner: type, stage: int) -> Callable[[], None]:
    """Tag what is constructed from now on; returns the function that ends it."""
    initialise = owner.__init__

    def tagged(self: Any, *args: Any, **kwargs: Any) -> None:
        self.__dict__[_TAG] = stage
        initialise(self, *args, **kwargs)

    # Keras reads the signature of `__init__` to save objects.
    tagged.__signature__ = inspect.signature(initialise)  # pyright: ignore[reportFunctionMemberAccess]
    owner.__init__ = tagged

    def undo() -> None:
        owner.__init__ = initialise

    return undo
