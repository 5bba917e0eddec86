"""Labels and indices are looked at before they go to the device, which would compute something from any number."""

from collections.abc import Sequence

import numpy as np

from openipu import environment
from openipu.program import Slot

# Executions whose data is looked at, where not all of it is: mistakes in data show early.
_FIRST = 8


class IndexCheck:
    """Looks at the inputs of a program that are labels or indices, as OPENIPU_CHECK_INDICES wants it."""

    def __init__(self, batch: Sequence[Slot]) -> None:
        self._limited = [(i, slot) for i, slot in enumerate(batch) if slot.limit is not None]
        self._wish = environment.check_indices() if self._limited else "off"
        self._seen = 0

    def one(self, feeds: Sequence[np.ndarray]) -> None:
        """Check the data of one execution, if it is among the first or all are to be."""
        if self._wish == "all" or (self._wish == "first" and self._seen < _FIRST):
            self._seen += 1
            self._check(feeds)

    def everything(self, arrays: Sequence[np.ndarray]) -> None:
        """Check arrays that all executions choose from."""
        if self._wish != "off":
            self._check(arrays)

    def _check(self, arrays: Sequence[np.ndarray]) -> None:
        for index, slot in self._limited:
            assert slot.limit is not None
            slot.limit.check(slot.name, np.asarray(arrays[index]))
