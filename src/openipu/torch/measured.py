"""What an executor measures: transfers, latencies, cycles and the time of compiling."""

import datetime

from openipu.torch.counters import Latency
from openipu.torch.exceptions import Error
from openipu.torch.options import Options
from openipu.torch.session import Session


class Measured:
    """The part of an executor that answers questions about time."""

    _session: Session
    _options: Options

    def getPerfCounters(self) -> dict[str, list[list[float]]]:
        """When every transfer of the last call began and ended, in seconds."""
        return self._session.counters.lists()

    def getLatency(self) -> Latency:
        """Seconds from the first upload to the last download: minimum, maximum, average."""
        return self._session.counters.latency("input", "output_complete")

    def getHostIpuLatency(self) -> Latency:
        """Seconds of the uploads."""
        return self._session.counters.latency("input", "input_complete")

    def getComputeLatency(self) -> Latency:
        """Seconds from the last upload to the first download."""
        return self._session.counters.latency("input_complete", "output")

    def getIpuHostLatency(self) -> Latency:
        """Seconds of the downloads."""
        return self._session.counters.latency("output", "output_complete")

    def cycleCount(self) -> int:
        """The seconds the last call computed, counted in cycles of the virtual IPU."""
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
