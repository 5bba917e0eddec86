"""`poptorch.poptorch_core`: names only."""

from openipu.torch.exceptions import Error, RecoverableError, TestErrorType, UnrecoverableError
from openipu.torch.exceptions import throw_test_error as _throwTestError
from openipu.torch.helpers import getIpuTensorId, importPoptorchMetadataFromFile, ipuHardwareVersion, poptorchAtExit
from openipu.torch.logger import setLogLevel
from openipu.torch.native import MACHINERY
from openipu.torch.native import set_popart_log_level as setPopartLogLevel
from openipu.torch.native import validate_options as _validateOptions
from openipu.torch.tracing import isRunningOnIpu as isCompilingWithDispatcher

globals().update(MACHINERY)

__all__ = [
    "Error",
    "RecoverableError",
    "TestErrorType",
    "UnrecoverableError",
    "_throwTestError",
    "_validateOptions",
    "getIpuTensorId",
    "importPoptorchMetadataFromFile",
    "ipuHardwareVersion",
    "isCompilingWithDispatcher",
    "poptorchAtExit",
    "setLogLevel",
    "setPopartLogLevel",
    *MACHINERY,  # pyright: ignore[reportUnsupportedDunderAll]
]
