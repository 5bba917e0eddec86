"""What an executor says of time: transfers, latencies and cycles of a real IPU, predicted; compiling, measured."""

import datetime

from openipu.torch.exceptions import Error
from openipu.torch.executor.counters import Latency
from openipu.torch.executor.session import Session
from openipu.torch.options import Options


class Measured:
    """The part of an executor that answers questions about time."""

    _session: Session
    _options: Options

    def getPerfCounters(self) -> dict[str, list[list[float]]]:
        """When every transfer of the last call would begin and end on an IPU, in seconds: an estimate."""
        return self._session.predicted_counters.lists()

    def getLatency(self) -> Latency:
        """Seconds from the first upload to the last download: minimum, maximum, average of an estimate."""
        return self._session.predicted_counters.latency("input", "output_complete")

    def getHostIpuLatency(self) -> Latency:
        """Seconds of the uploads: an estimate."""
        return self._session.predicted_counters.latency("input", "input_complete")

    def getComputeLatency(self) -> Latency:
        """Seconds from the last upload to the first download: an estimate."""
        return self._session.predicted_counters.latency("input_complete", "output")

    def getIpuHostLatency(self) -> Latency:
        """Seconds of the downloads: an estimate."""
        return self._session.predicted_counters.latency("output", "output_complete")

    def cycleCount(self) -> int:
        """Cycles that a call would take on a real IPU: an estimate."""
        if not self._options._Popart.options.get("instrumentWithHardwareCycleCounter"):
            raise Error("Cycle count logging is disabled. Please set option logCycleCount to True to enable.")
        if not self._session.runs:
            raise Error("Please run the model at least once before obtaining cycle count.")
        return self._session.cycles()

    def compilationTime(self) -> datetime.timedelta:
        """How long compiling took."""
        if self._session.compiled is None:
            raise Error("Please compile the model before obtaining compilation time.")
        if not self._options._show_compilation_progress_bar:
            raise Error("Please set showCompilationProgressBar option to obtain compilation time.")
        return datetime.timedelta(seconds=self._session.seconds)
