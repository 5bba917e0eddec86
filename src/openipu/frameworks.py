"""Which releases of the frameworks openipu works with, and what it uses of them beyond their public APIs."""

import importlib
import importlib.metadata
import inspect
import sys
from collections.abc import Iterable
from typing import Any

import attrs
from packaging.requirements import Requirement


@attrs.frozen
class Private:
    """One row of a boundary's table: something of a framework that is not promised to stay.

    Args:
      what: dotted name of a module, class, function, or attribute; attributes may be such that objects get when made.
      why: what openipu needs it for.
      undone: for what is replaced, how it comes back; for what is only used, nothing.
    """

    what: str
    why: str
    undone: str = ""


def require(*names: str) -> None:
    """Raise an ImportError for the first of these packages whose release openipu is not made for."""
    wanted = {requirement.name: requirement for requirement in requirements()}
    for name in names:
        requirement, version = wanted.get(name), _version(name)
        if requirement is None or version is None or requirement.specifier.contains(version, prereleases=True):
            continue
        raise ImportError(
            f"openipu needs {name}{requirement.specifier}, but {name} {version} is installed. "
            "`openipu doctor` says which command installs what fits."
        )


def requirements() -> list[Requirement]:
    """What openipu's installation says it needs; nothing where it is imported without being installed."""
    try:
        found = [Requirement(line) for line in importlib.metadata.requires("openipu") or ()]
    except importlib.metadata.PackageNotFoundError:
        return []
    # One extra may name another by openipu's own name.
    return [requirement for requirement in found if requirement.name != "openipu"]


def missing(table: Iterable[Private]) -> list[str]:
    """What of a boundary's table the installed framework does not have, a sentence for each."""
    return [
        f"{row.what} is gone from {_package(row.what)}. openipu needs it: {row.why}."
        for row in table
        if not _exists(row.what)
    ]


def _exists(name: str) -> bool:
    parts = name.split(".")
    found: Any = None
    for index in range(len(parts)):
        try:
            found = importlib.import_module(".".join(parts[: index + 1]))
        except ModuleNotFoundError:
            if found is None:
                return False
            for attribute in parts[index:-1]:
                found = getattr(found, attribute, None)
            return hasattr(found, parts[-1]) or (inspect.isclass(found) and _assigns(found, parts[-1]))
    return True


def _assigns(owner: type, attribute: str) -> bool:
    """Whether methods of a class or its bases use an attribute that only objects have."""
    methods = [value for base in owner.__mro__ for value in vars(base).values()]
    codes = [inspect.unwrap(method).__code__ for method in methods if inspect.isfunction(method)]
    return any(attribute in code.co_names for code in codes)


def _package(name: str) -> str:
    package = name.partition(".")[0]
    return f"{package} {getattr(importlib.import_module(package), '__version__', '')}"


def _version(name: str) -> str | None:
    loaded = getattr(sys.modules.get(name.replace("-", "_")), "__version__", None)
    if loaded is not None:
        return loaded
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
