"""`PipelineStage`: layers constructed or called inside belong to a stage."""

from collections.abc import Callable
from types import TracebackType
from typing import Any

from openipu.tensorflow.executor import strategy as strategies
from openipu.tensorflow.keras import versions
from openipu.tensorflow.keras.versions import patches

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
        if not isinstance(strategies.current(), strategies.IPUStrategyV1):
            raise RuntimeError("PipelineStage may only be used from within an IPUStrategy context.")
        if _active is not None:
            raise RuntimeError("Pipeline stages must not be nested.")
        _active = self._stage
        _opened += 1
        for version in versions.loaded():
            for owner in version.STAGED:
                self._undo.append(patches.before_init(owner, self._tag))
            for model in version.models_being_called():
                mark(model)
        return self

    def _tag(self, thing: Any) -> None:
        thing.__dict__[_TAG] = self._stage

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
