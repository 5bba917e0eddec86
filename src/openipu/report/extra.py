"""Imports the optional libraries that pages and pictures are made with."""

import importlib
from types import ModuleType


def load(module: str, purpose: str) -> ModuleType:
    """Imports a module of the `report` extra; says how to install it if it is missing.

    Args:
      module: the module.
      purpose: what it is needed for, as the beginning of a sentence.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        library = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != library:
            raise
        raise ImportError(f"{purpose} needs {library}. Install it with: pip install openipu[report]") from error
