"""Programs that are compiled for IPUs that are not there: every execution gives zeros and changes nothing."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from openipu.runtime.engine import Engine, Results


class OfflineEngine(Engine):
    """Takes what an engine takes, and runs nothing."""

    def place_tables(self, arrays: Sequence[np.ndarray]) -> list:
        """Data has nowhere to go."""
        return []

    def place_rows(self, numbers: np.ndarray) -> Any:
        """Row numbers have nowhere to go."""
        return numbers

    def place(self, feeds: Sequence[np.ndarray]) -> list:
        """Feeds have nowhere to go."""
        return []

    def run(self, feeds: Sequence[Any], seeds: Sequence[int]) -> Results:
        """Zeros, shaped as the program's results."""
        _, _, outputs, finished = self.executable.shapes
        return Results([np.zeros(o.shape, o.dtype) for o in outputs], [np.zeros(f.shape, f.dtype) for f in finished])
