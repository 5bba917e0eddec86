"""Execution strategies: how the blocks of a model become stages or phases."""

from collections.abc import Sequence
from typing import Any, Self

from openipu.torch.enums import AutoStage, Liveness
from openipu.torch.options.stages import BlockId, Phase, Placement, Stage

__all__ = [
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "SerialPhasedExecution",
    "ShardedExecution",
    "Stage",
]

_PIPELINED, _SHARDED, _PHASED = 0, 1, 2  # what backendOptions calls the execution mode


class _IExecutionStrategy:
    """What all strategies have: blocks with a known stage, and a placement for every block met while tracing."""

    def __init__(self, block_map: dict[BlockId, Stage]) -> None:
        self._block_map = block_map

    def stage(self, block_id: BlockId) -> Stage:
        """The stage a block was given."""
        assert block_id in self._block_map, f"Unknown block {block_id}"
        return self._block_map[block_id]

    def onStartTracing(self) -> None:
        """Called before a model is captured."""

    def onEndTracing(self) -> None:
        """Called after a model was captured."""

    def backendOptions(self) -> dict[str, int | bool]:
        """The strategy as plain values."""
        raise NotImplementedError

    def placement(self, block_id: BlockId, ipu_id: int | None) -> Placement:
        """Where a block that the capture has met runs.

        Args:
          block_id: the block's name.
          ipu_id: the IPU the block asked for itself.
        """
        raise NotImplementedError

    def _known(self, block_id: BlockId) -> Stage:
        assert block_id in self._block_map, (
            f"Unknown Block '{block_id}' list of expected Blocks: {list(self._block_map)}"
        )
        return self._block_map[block_id]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self._block_map)})"


class PipelinedExecution(_IExecutionStrategy):
    """Stages work on different micro-batches at the same time.

    Args:
      args: nothing (a stage per IPU), one `AutoStage`, or the stages in order: a `Stage`, a block id or a list of them.
    """

    def __init__(self, *args: AutoStage | Stage | BlockId | Sequence[BlockId]) -> None:
        self._auto: AutoStage | None = None
        self._stages: list[Stage] = []
        self._numbers: dict[BlockId, int] = {}
        if not args:
            self._auto = AutoStage.SameAsIpu
        elif isinstance(args[0], AutoStage):
            assert len(args) == 1, "An AutoStage is the only argument. Received: " + ", ".join(map(repr, args))
            self._auto = args[0]
        else:
            self._stages = [_as_stage(item) for item in args]
        super().__init__(_block_map(self._stages))

    def onStartTracing(self) -> None:
        """Numbers blocks from the start again."""
        self._numbers.clear()

    def backendOptions(self) -> dict[str, int | bool]:
        """The strategy as plain values."""
        return {"execution_mode": _PIPELINED}

    def placement(self, block_id: BlockId, ipu_id: int | None) -> Placement:
        """Where a block runs: the stage's IPU if it has one, else the block's own, else that of the stage's number."""
        if self._auto is AutoStage.SameAsIpu:
            assert ipu_id is not None, (
                f"poptorch.AutoStage.SameAsIpu was selected but no IPU was specified for block {block_id}"
            )
            return Placement(ipu_id, 0, ipu_id)
        if self._auto is AutoStage.AutoIncrement:
            # Stage 0 is what runs before the first block.
            number = self._numbers.setdefault(block_id, len(self._numbers) + 1)
            return Placement(number, 0, number if ipu_id is None else ipu_id)
        stage = self._known(block_id)
        number = self._stages.index(stage)
        return Placement(number, 0, _ipu(stage, ipu_id, number))

    def __repr__(self) -> str:
        shown = str(self._auto) if self._auto is not None else ", ".join(map(repr, self._stages))
        return f"{type(self).__name__}({shown})"


class ShardedExecution(PipelinedExecution):
    """Stages work one after the other on one micro-batch."""

    def backendOptions(self) -> dict[str, int | bool]:
        """The strategy as plain values."""
        return {"execution_mode": _SHARDED}


class _IPhasedExecution(_IExecutionStrategy):
    """Phases follow each other; weights and activations may leave the chip between them.

    Args:
      phases: the phases in order, each a `Phase`, a `Stage`, a block id or a list of stages or of block ids.
    """

    def __init__(self, *phases: Phase | Stage | BlockId | Sequence[Stage] | Sequence[BlockId]) -> None:
        assert phases, "There is currently no AutoStage for PhasedExecution, please explicitly specify the phases"
        self._phases = [_as_phase(item) for item in phases]
        self._liveness = Liveness.AlwaysLive
        self._separate_backward_phase = False
        super().__init__(_block_map([stage for phase in self._phases for stage in phase.stages]))

    def phase(self, phase: int) -> Phase:
        """The phase with a number."""
        assert 0 <= phase < len(self._phases), f"Invalid phase {phase}: there are {len(self._phases)} phases"
        return self._phases[phase]

    def useSeparateBackwardPhase(self, use: bool = True) -> Self:
        """Whether the backward passes get phases of their own."""
        assert isinstance(use, bool), f"useSeparateBackwardPhase needs a bool. Received: {type(use)}"
        self._separate_backward_phase = use
        return self

    def backendOptions(self) -> dict[str, int | bool]:
        """The strategy as plain values."""
        return {
            "execution_mode": _PHASED,
            "separate_backward_phase": self._separate_backward_phase,
            "tensors_liveness": int(self._liveness),
        }

    def placement(self, block_id: BlockId, ipu_id: int | None) -> Placement:
        """Where a block runs, its phase included."""
        stage = self._known(block_id)
        phase = next(index for index, phase in enumerate(self._phases) if stage in phase.stages)
        number = self._phases[phase].stages.index(stage)
        return Placement(number, phase, _ipu(stage, ipu_id, number))

    def _set_liveness(self, liveness: Liveness) -> Self:
        assert isinstance(liveness, Liveness), f"Expected a poptorch.Liveness. Received: {type(liveness)}"
        self._liveness = liveness
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._phases))})"


class ParallelPhasedExecution(_IPhasedExecution):
    """Even and odd phases run at the same time, on even and odd IPUs."""

    def sendTensorsOffChipAfterFwd(self, off_chip: bool = True) -> Self:
        """Whether the tensors of a phase leave the chip after its forward pass."""
        assert isinstance(off_chip, bool), f"sendTensorsOffChipAfterFwd needs a bool. Received: {type(off_chip)}"
        return self._set_liveness(Liveness.OffChipAfterFwd if off_chip else Liveness.AlwaysLive)

    def backendOptions(self) -> dict[str, int | bool]:
        """The strategy as plain values."""
        assert self._liveness in (Liveness.AlwaysLive, Liveness.OffChipAfterFwd), (
            "This is only supported for serial phase execution"
        )
        return {**super().backendOptions(), "serial_phases_execution": False}

    def placement(self, block_id: BlockId, ipu_id: int | None) -> Placement:
        """Where a block runs; even phases must be on even IPUs and odd ones on odd IPUs."""
        placement = super().placement(block_id, ipu_id)
        assert placement.ipu % 2 == placement.phase % 2, (
            "When phases are executed in parallel: even phases must run on even IPUs and odd phases on odd IPUs. "
            f"Received: block {block_id!r} of phase {placement.phase} on IPU {placement.ipu}."
        )
        return placement


class SerialPhasedExecution(_IPhasedExecution):
    """Phases run one after the other."""

    def setTensorsLiveness(self, liveness: Liveness) -> Self:
        """When the tensors of a phase leave the chip."""
        return self._set_liveness(liveness)

    def backendOptions(self) -> dict[str, int | bool]:
        """The strategy as plain values."""
        return {**super().backendOptions(), "serial_phases_execution": True}


def _as_stage(item: Any) -> Stage:
    if isinstance(item, Stage):
        return item
    if isinstance(item, list | tuple):
        return Stage(*item)
    return Stage(item)


def _as_phase(item: Any) -> Phase:
    if isinstance(item, Phase):
        return item
    return Phase(*item) if isinstance(item, list | tuple) else Phase(item)


def _block_map(stages: Sequence[Stage]) -> dict[BlockId, Stage]:
    found: dict[BlockId, Stage] = {}
    for stage in stages:
        for block in stage.blocks:
            assert block not in found, f"{block} associated with more than one stage"
            found[block] = stage
    return found


def _ipu(stage: Stage, asked: int | None, number: int) -> int:
    if stage._ipu_id is not None:
        return stage._ipu_id
    return number if asked is None else asked
