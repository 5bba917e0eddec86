"""`poptorch._impl`: names only."""

from openipu.torch.exceptions import createPoptorchError
from openipu.torch.tracing import isRunningOnIpu

isDispatchTracing = isRunningOnIpu

__all__ = ["createPoptorchError", "isDispatchTracing", "isRunningOnIpu"]
