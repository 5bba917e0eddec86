"""The addons of TensorFlow for the IPU: names only, the classes are those of openipu."""

import importlib
from types import ModuleType

from openipu.tensorflow.addons.dependencies import check_dependencies

__all__ = ["check_dependencies"]


def __getattr__(name: str) -> ModuleType:
    # Imported when they are first used: each of them loads TensorFlow.
    if name in ("keras", "v1"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
