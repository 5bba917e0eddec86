"""Running executables: values that live on the device, feeds that are prefetched, results that come back."""

from openipu.runtime.device_engine import DeviceEngine
from openipu.runtime.engine import Engine, Results
from openipu.runtime.feed import Gatherer, aligned, prefetch
from openipu.runtime.offline_engine import OfflineEngine
from openipu.runtime.pipeline_engine import PipelineEngine
from openipu.runtime.resident import Resident, bring_all_home
from openipu.runtime.session import CompiledPrograms, Session, Setting, forget_compiled_programs
from openipu.runtime.signals import held
from openipu.runtime.synthetic import REAL, Kind, Synthetic
from openipu.runtime.tables import rows_for
from openipu.runtime.turns import compiling, refuse_forked
from openipu.runtime.waiting import stoppable

__all__ = [
    "REAL",
    "CompiledPrograms",
    "DeviceEngine",
    "Engine",
    "Gatherer",
    "Kind",
    "OfflineEngine",
    "PipelineEngine",
    "Resident",
    "Results",
    "Session",
    "Setting",
    "Synthetic",
    "aligned",
    "bring_all_home",
    "compiling",
    "forget_compiled_programs",
    "held",
    "prefetch",
    "refuse_forked",
    "rows_for",
    "stoppable",
]
