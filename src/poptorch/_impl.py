"""`poptorch._impl`: names only, those that need the executor loaded when first touched."""

from openipu.torch.exceptions import createPoptorchError
from openipu.torch.tracing import isRunningOnIpu
from poptorch import _lazy

isDispatchTracing = isRunningOnIpu

_NAMES: dict[str, str] = dict.fromkeys(
    ("_restoreWrapperIfNecessary", "rewrapModelIfNecessary", "unwrapModelIfNecessary"),
    "openipu.torch.executor.wrapping",
)

__getattr__ = _lazy.getattr_for(__name__, _NAMES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})


__all__ = ["createPoptorchError", "isDispatchTracing", "isRunningOnIpu"]
