"""The poptorch namespace on openipu: names only."""

from typing import TYPE_CHECKING, Any

from openipu.torch.data import AsynchronousDataAccessor, DataLoader
from openipu.torch.enums import (
    AutoStage,
    CommGroupType,
    ConnectionType,
    DataLoaderMode,
    HalfFloatCastingBehavior,
    Liveness,
    MatMulSerializationMode,
    MeanReductionStrategy,
    MultiConvPlanType,
    OutputMode,
    OverlapMode,
    ReductionType,
    SharingStrategy,
    SyncPattern,
    VariableRetrievalMode,
)
from openipu.torch.exceptions import ConfigFileError, Error, RecoverableError, UnrecoverableError, createPoptorchError
from openipu.torch.helpers import (
    getIpuTensorId,
    importPoptorchMetadataFromFile,
    ipuHardwareIsAvailable,
    ipuHardwareVersion,
    poptorchAtExit,
    registerGeometricCustomArgParsers,
)
from openipu.torch.logger import logger, setLogLevel
from openipu.torch.options import (
    BlockId,
    Options,
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
    TensorLocationSettings,
)
from openipu.torch.structures import ICustomArgParser, registerCustomArgParser
from openipu.torch.tracing import isRunningOnIpu
from openipu.version import __version__ as _openipu_version
from poptorch import _lazy, enums, options, poptorch_core, profiling

# What programs print and compare: the version of poptorch that is described, and the one that answers.
__version__ = f"3.4.0-openipu.{_openipu_version}"

_SUBMODULES = ("_impl", "_logging", "_options_impl", "_poplar_executor", "_utils", "ops", "optim", "testing")

if not TYPE_CHECKING:
    _lazy_getattr = _lazy.getattr_for(__name__, _lazy.NAMES, globals())

    def __getattr__(name: str) -> Any:
        if name in _SUBMODULES:
            import importlib

            return importlib.import_module(f"{__name__}.{name}")
        return _lazy_getattr(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_lazy.NAMES, *_SUBMODULES})


_lazy.load()

__all__ = [
    "AsynchronousDataAccessor",
    "AutoStage",
    "BlockId",
    "CommGroupType",
    "ConfigFileError",
    "ConnectionType",
    "DataLoader",
    "DataLoaderMode",
    "Error",
    "HalfFloatCastingBehavior",
    "ICustomArgParser",
    "Liveness",
    "MatMulSerializationMode",
    "MeanReductionStrategy",
    "MultiConvPlanType",
    "Options",
    "OutputMode",
    "OverlapMode",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "RecoverableError",
    "ReductionType",
    "SerialPhasedExecution",
    "ShardedExecution",
    "SharingStrategy",
    "Stage",
    "SyncPattern",
    "TensorLocationSettings",
    "UnrecoverableError",
    "VariableRetrievalMode",
    "createPoptorchError",
    "enums",
    "getIpuTensorId",
    "importPoptorchMetadataFromFile",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "isRunningOnIpu",
    "logger",
    "options",
    "poptorchAtExit",
    "poptorch_core",
    "profiling",
    "registerCustomArgParser",
    "registerGeometricCustomArgParsers",
    "setLogLevel",
]

# Last: that package imports this one.
registerGeometricCustomArgParsers()
