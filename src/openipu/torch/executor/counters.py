"""When the transfers of a call began and ended, and the latencies that follow from it."""

from collections.abc import Sequence

import attrs

Latency = tuple[float, float, float]
KEYS = ("input", "input_complete", "output", "output_complete")


@attrs.frozen
class Counters:
    """Measured moments of one call, in seconds from its start.

    Attributes:
      moments: the begin and end of the upload, the begin and end of the download.
      inputs, outputs: how many tensors went either way.
      uploads, downloads: how many transfers each of them counts for.
    """

    moments: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    inputs: int = 0
    outputs: int = 0
    uploads: int = 0
    downloads: int = 0

    def lists(self) -> dict[str, list[list[float]]]:
        """The moments of every transfer of every tensor; all are transferred together."""
        sizes = ((self.inputs, self.uploads),) * 2 + ((self.outputs, self.downloads),) * 2
        return {
            key: [[moment] * transfers for _ in range(tensors)] or [[]]
            for key, moment, (tensors, transfers) in zip(KEYS, self.moments, sizes, strict=True)
        }

    def latency(self, first: str, last: str) -> Latency:
        """Minimum, maximum and average seconds from one moment to another."""
        if not self.downloads or not self.outputs or not self.inputs:
            return (0.0, 0.0, 0.0)
        seconds = self.moments[KEYS.index(last)] - self.moments[KEYS.index(first)]
        return summary([seconds])


def summary(seconds: Sequence[float]) -> Latency:
    """Minimum, maximum and average."""
    return (min(seconds), max(seconds), sum(seconds) / len(seconds)) if seconds else (0.0, 0.0, 0.0)
