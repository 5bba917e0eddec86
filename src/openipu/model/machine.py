"""One IPU and how it is asked to compute: what prices of kernels depend on."""

import attrs

from openipu.hardware.target import Target
from openipu.model import kernels, planner
from openipu.model.estimate import OperationKind
from openipu.model.options import Options, Partials


@attrs.frozen
class Machine:
    """One IPU and how it is asked to compute.

    Attributes:
      target, options: the kind of IPU, and what was asked of it.
      stages: the number of pipeline stages; 0 when there is no pipeline.
      mapping: the IPU of each stage.
      training: there is a backward pass.
      replicas: over which collectives go.
    """

    target: Target
    options: Options
    stages: int = 0
    mapping: tuple[int, ...] = (0,)
    training: bool = False
    replicas: int = 1

    @property
    def tiles(self) -> kernels.Tiles:
        """The tiles that compute."""
        return kernels.Tiles(self.target.tiles - self.options.io_tiles)

    @property
    def prices(self) -> tuple:
        """All that prices of kernels depend on: where values are kept, and for how long, is not part of it."""
        chosen = self.options
        proportions = (chosen.matmul_proportion, chosen.convolution_proportion, chosen.stage_proportions)
        asked = (chosen.partials, chosen.io_tiles, *proportions)
        return self.target, self.stages, self.mapping, self.training, self.replicas, *asked

    def place(self, level: int) -> tuple[int, bool]:
        """The stage of a part of a pipeline, and whether it is its backward pass."""
        if not self.stages:
            return 0, False
        level = max(0, level)
        return (level, False) if level < self.stages else (2 * self.stages - 1 - level, True)

    def chip(self, kind: OperationKind, stage: int, half: bool) -> planner.Chip:
        """The IPU of a stage as the planner sees it."""
        chosen = self.options
        proportion = chosen.matmul_proportion if kind is OperationKind.MATMUL else chosen.convolution_proportion
        proportion = dict(chosen.stage_proportions).get(self.mapping[stage], proportion)
        partials = chosen.partials is Partials.HALF
        return planner.chip(self.target, self.tiles.count, half, partials, proportion)
