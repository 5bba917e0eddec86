"""The functions of the original's native layer that programs and libraries reach for: what they mean, or a refusal."""

from collections.abc import Callable
from typing import Any

from openipu.torch.exceptions import Error, UnsupportedError
from openipu.torch.options import check_popart

# They work on graphs and executables that exist in the original's memory only.
_MACHINERY = (
    "_getPopartIR", "_getTensorNames", "appendPoptorchMetadataToFile", "attachToDevice", "compileWithManualTracing",
    "copyNamedBuffersToDevice_impl", "copyWeightsToDevice_impl", "copyWeightsToHost_impl", "createGraph", "cycleCount",
    "destroyDispatcher", "detachFromDevice", "endDispatch", "endOutputsMove", "endParametersMove", "execute",
    "finalizeGraph", "getRandomSeed", "getRngState", "getTimestamps", "isAlreadyRegistered", "isAttachedToDevice",
    "isGraphNondeterministic", "loadEngineAndConnectStreams", "mapParamsToNames", "processDispatchAndImportExecutable",
    "readOptimizerState", "registerBuffersWithCallback", "registerCPUCallBack", "saveExecutableToFile",
    "setCustomCodeletsPath", "setPerReplica", "setRngState", "startDispatch", "startOutputsMove",
    "startParametersMove", "updateOptimizers", "writeOptimizerState",
)  # fmt: skip


def _refusing(name: str) -> Callable:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(
            f"poptorch.poptorch_core.{name} works on what the original's native layer keeps, which does not exist "
            "here. Use the methods of the executor that poptorch.trainingModel or poptorch.inferenceModel returns."
        )

    call.__name__ = call.__qualname__ = name
    call.__doc__ = "Refused: there is no native layer."
    return call


MACHINERY: dict[str, Callable] = {name: _refusing(name) for name in _MACHINERY}


def validate_options(options: dict[str, Any]) -> None:
    """Refuses options, as `Options.toDict()` returns them, that do not exist or are not of their type."""
    if not isinstance(options, dict):
        raise Error(f"_validateOptions expects what Options.toDict() returns. Received: {type(options)}")
    # The names of poptorch's own options are small letters; those of its backend are not.
    check_popart({key: value for key, value in options.items() if not key.islower()})


def set_popart_log_level(level: str | int) -> None:
    """Without effect: there is no such backend."""
