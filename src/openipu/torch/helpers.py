"""The small questions programs ask the poptorch namespace: is there hardware, which version, clean up."""

import gc
import importlib
import importlib.util
from typing import Any

from openipu import environment
from openipu.hardware import current_system
from openipu.torch.exceptions import Error
from openipu.torch.logger import logger

# The number programs know each architecture by.
_VERSIONS = {"ipu1": 1, "ipu2": 2, "ipu21": 21}


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """Whether the virtual system has that many IPUs; False where a variable asks for the software model instead.

    Args:
      num_ipus: how many IPUs the program needs.
    """
    return not environment.poptorch_ipu_model() and num_ipus <= current_system().count


def ipuHardwareVersion() -> int:
    """The version of the virtual system's IPUs: 1, 2 or 21."""
    assert ipuHardwareIsAvailable(), "No IPU hardware available on this system"
    return _VERSIONS[current_system().target.architecture]


def getIpuTensorId(x: Any) -> int:
    """A number that tells a tensor from all others alive."""
    return id(x)


def importPoptorchMetadataFromFile(filename: str) -> bytes:
    """Refused: the record inside an exported file is read by `poptorch.load` only."""
    raise Error(
        f"Invalid file {filename}: reading the metadata of an exported executable alone is not supported. "
        "Use poptorch.load(filename) or executor.loadExecutable(filename)."
    )


def poptorchAtExit() -> None:
    """Lets go of what executors and loaders hold; called by programs that leave without a normal exit."""
    from openipu.torch.data import accessor

    accessor.terminate_all()
    gc.collect()


def registerGeometricCustomArgParsers() -> None:
    """Registers the parsers of the package `poptorch_geometric`, where it is installed and works."""
    try:
        if importlib.util.find_spec("poptorch_geometric") is None:
            return
        found = importlib.import_module("poptorch_geometric")
        register = getattr(found, "registerCustomArgParsers", None)
        if register is not None:
            register()
    except Exception as error:
        # Programs that do not use it must not suffer.
        logger.warning(
            "The package poptorch_geometric is installed but cannot be used: %s: %s", type(error).__name__, error
        )
