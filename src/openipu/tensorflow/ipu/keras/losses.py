"""The losses of old programs, found in ipu_tensorflow_addons."""

import importlib
from typing import Any

_ADDONS = "ipu_tensorflow_addons.keras.layers"


def __getattr__(name: str) -> Any:
    if name != "CTCLoss":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(_ADDONS).CTCLoss
