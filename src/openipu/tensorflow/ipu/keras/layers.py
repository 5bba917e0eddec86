"""The layers of old programs, found in ipu_tensorflow_addons."""

import importlib
from typing import Any

_ADDONS = "ipu_tensorflow_addons.keras.layers"


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(importlib.import_module(_ADDONS), name)
