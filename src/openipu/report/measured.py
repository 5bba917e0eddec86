"""What this machine measured while a program ran: it stands beside predictions, and is never mixed with them."""

import os
import platform
import statistics
from typing import Any

import attrs

# Executions that a report lists one by one unless told otherwise; more are counted.
LISTED = 1000


@attrs.define
class Measured:
    """Times of one compiled program on this machine.

    Attributes:
      compile_seconds: from the captured program to something that runs.
      samples: samples of one execution, over all replicas; None when the inputs do not say.
      seconds: host time of each execution, the first ones.
      executions: how many there were.
      listed: of how many executions the times are kept.
    """

    compile_seconds: float | None = None
    samples: int | None = None
    seconds: list[float] = attrs.field(factory=list)
    executions: int = 0
    listed: int = LISTED

    def add(self, seconds: float) -> None:
        """One more execution."""
        self.executions += 1
        if len(self.seconds) < self.listed:
            self.seconds.append(seconds)

    def typical(self) -> float | None:
        """The median of the executions; the first one, which warms up, left out where there are others."""
        return statistics.median(self.seconds[1:] or self.seconds) if self.seconds else None

    def to_json(self) -> dict[str, Any]:
        """The measurements as JSON."""
        typical = self.typical()
        return {
            "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.system()},
            "compile_seconds": self.compile_seconds,
            "executions": self.executions,
            "seconds": [float(f"{s:.6g}") for s in self.seconds],
            "typical_seconds": typical,
            "throughput": self.samples / typical if typical and self.samples else None,
        }


def processor() -> str:
    """The name of this machine's processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() == "model name":
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
