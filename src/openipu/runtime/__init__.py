"""Running executables: values that live on the device, feeds that are prefetched, results that come back."""

from openipu.runtime.engine import Engine, Results
from openipu.runtime.feed import Gatherer, prefetch
from openipu.runtime.offline import OfflineEngine
from openipu.runtime.pipeline_engine import PipelineEngine
from openipu.runtime.resident import Resident, bring_all_home
from openipu.runtime.tables import rows_for

__all__ = [
    "Engine",
    "Gatherer",
    "OfflineEngine",
    "PipelineEngine",
    "Resident",
    "Results",
    "bring_all_home",
    "prefetch",
    "rows_for",
]
