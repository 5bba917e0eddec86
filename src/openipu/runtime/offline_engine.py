"""Programs that are compiled for IPUs that are not there: every execution gives zeros and changes nothing."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from openipu.compiler import Executable
from openipu.program import OutputMode
from openipu.runtime.engine import ExecutableEngine, Results


class OfflineEngine(ExecutableEngine):
    """Takes what an engine takes, and runs nothing."""

    executable: Executable

    def place_tables(self, arrays: Sequence[np.ndarray]) -> list:
        """Data has nowhere to go."""
        return []

    def place_rows(self, numbers: np.ndarray) -> Any:
        """Row numbers have nowhere to go."""
        return numbers

    def place(self, feeds: Sequence[np.ndarray]) -> list:
        """Feeds have nowhere to go."""
        return []

    def run(self, feeds: Any, seeds: Sequence[int]) -> Results:
        """Zeros, shaped as the program's results."""
        _, _, outputs, finished, _ = self.executable.shapes
        # Shapes are those of all instances; outputs come back for the replicas of this one.
        axis = 0 if self.plan.outputs is OutputMode.FINAL else 1
        shares = [list(o.shape) for o in outputs]
        for shape in shares if self.plan.instances > 1 else ():
            shape[axis] //= self.plan.instances
        made = [np.zeros(shape, o.dtype) for shape, o in zip(shares, outputs, strict=True)]
        return Results(made, [np.zeros(f.shape, f.dtype) for f in finished])
