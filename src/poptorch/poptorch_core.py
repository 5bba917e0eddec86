"""`poptorch.poptorch_core`: names only."""

from openipu.torch.exceptions import Error, RecoverableError, TestErrorType, UnrecoverableError
from openipu.torch.exceptions import throw_test_error as _throwTestError
from openipu.torch.helpers import getIpuTensorId, importPoptorchMetadataFromFile, ipuHardwareVersion, poptorchAtExit
from openipu.torch.logger import setLogLevel

__all__ = [
    "Error",
    "RecoverableError",
    "TestErrorType",
    "UnrecoverableError",
    "_throwTestError",
    "getIpuTensorId",
    "importPoptorchMetadataFromFile",
    "ipuHardwareVersion",
    "poptorchAtExit",
    "setLogLevel",
]
