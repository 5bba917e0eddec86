"""Which numbers an input may hold, when it holds labels or indices: beyond them results mean nothing."""

from collections.abc import Iterable

import attrs
import numpy as np

from openipu.errors import IndexRangeError


@attrs.frozen
class Limit:
    """The numbers from `first` to `below`, without `below` itself.

    Attributes:
      first, below: the range.
      use: what the numbers are used for.
      also: numbers beyond it that mean something else, such as labels to be left out.
    """

    first: int
    below: int
    use: str
    also: tuple[int, ...] = ()

    def check(self, name: str, values: np.ndarray) -> None:
        """Refuse values beyond the limit."""
        if not values.size or (values.min() >= self.first and values.max() < self.below):
            return
        bad = ~((values >= self.first) & (values < self.below))
        for number in self.also:
            bad &= values != number
        if bad.any():
            place = tuple(int(i[0]) for i in np.nonzero(bad)) if values.ndim else ()
            raise IndexRangeError(
                f"{name} is used as {self.use}, so its values must be at least {self.first} and less than "
                f"{self.below}. Received: {values[place]} (at {list(place)}; {int(bad.sum())} of {values.size} values)."
            )


def strictest(limits: Iterable[Limit]) -> Limit | None:
    """One limit for an input that is used in several places."""
    found: Limit | None = None
    for limit in limits:
        if found is None or (limit.below, -limit.first) < (found.below, -found.first):
            found = limit
    return found
