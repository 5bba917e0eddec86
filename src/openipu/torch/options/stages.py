"""Stages and phases: which blocks of a model belong together, and on which IPU they run."""

from typing import Self

import attrs

BlockId = str


class Stage:
    """Blocks that run together on one IPU.

    Args:
      block_ids: the names of the blocks.
    """

    def __init__(self, *block_ids: BlockId) -> None:
        wrong = [block for block in block_ids if not isinstance(block, str)]
        assert not wrong, f"Block IDs are supposed to be strings but got {wrong[0]!r} ({type(wrong[0])})"
        self._blocks = list(block_ids)
        self._ipu_id: int | None = None

    def ipu(self, ipu: int) -> Self:
        """Puts the stage on an IPU."""
        assert isinstance(ipu, int), f"An IPU is given by its number. Received: {ipu!r} ({type(ipu)})"
        self._ipu_id = ipu
        return self

    @property
    def blocks(self) -> list[BlockId]:
        """The names of the blocks."""
        return self._blocks

    def __repr__(self) -> str:
        return f"Stage(blocks={self._blocks}, ipu={self._ipu_id})"


class Phase:
    """Stages that run at the same time.

    Args:
      arg: stages, or names of blocks that form one stage.
    """

    def __init__(self, *arg: BlockId | Stage) -> None:
        if all(isinstance(item, str) for item in arg):
            self.stages = [Stage(*[str(item) for item in arg])] if arg else []
        else:
            wrong = [item for item in arg if not isinstance(item, Stage)]
            assert not wrong, f"A phase takes either stages or block ids, not both. Received: {wrong[0]!r}"
            self.stages = [item for item in arg if isinstance(item, Stage)]

    def stage(self, idx: int) -> Stage:
        """The stage with a number."""
        return self.stages[idx]

    def ipus(self, *ipus: int) -> None:
        """Puts every stage on an IPU."""
        assert len(ipus) == len(self.stages), (
            f"Phase contains {len(self.stages)} stages but you provided {len(ipus)} ipus"
        )
        for stage, ipu in zip(self.stages, ipus, strict=True):
            stage.ipu(ipu)

    def __repr__(self) -> str:
        return f"Phase({', '.join(map(repr, self.stages))})"


@attrs.frozen
class Placement:
    """Where a block runs.

    Attributes:
      stage: the number of its stage, within its phase where there are phases.
      phase: the number of its phase; 0 without phases.
      ipu: the IPU.
    """

    stage: int
    phase: int
    ipu: int
