"""Names that are imported when they are first used."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package.

    Args:
      package: its name.
      names: for each public name, where it comes from: "module" below the package, or "module:attribute".
    """

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = names[name].partition(":")
        found = importlib.import_module(module if module.startswith("openipu.") else f"{package}.{module}")
        return getattr(found, attribute) if attribute else found

    def __dir__() -> list[str]:
        return sorted(names)

    return __getattr__, __dir__


def moved(module: str, name: str, target: str) -> Any:
    """A name of an old module, found in the module `target` if that is installed."""
    try:
        return getattr(importlib.import_module(target), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise AttributeError(f"{module}.{name} has moved to {target}, but is not found there: {error}") from error
