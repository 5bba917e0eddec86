"""poprun's options in a file, its versions, and a virtual system that is large enough to compile for."""

import json
import platform
from collections.abc import Collection, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from openipu import hardware
from openipu.launch.errors import LaunchError
from openipu.version import __version__

# What belongs to one call and not to a configuration.
_OF_THE_CALL = {"import_config", "export_config", "overwrite_config", "version", "version_format"}


def read(path: Path, known: Collection[str], given: Collection[str]) -> dict[str, Any]:
    """The options in a file.

    Args:
      path: the file, as `write` makes it.
      known: all options.
      given: those of the command line, which win.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise LaunchError(f"The configuration {path} cannot be read: {error}.") from None
    if not isinstance(found, dict):
        raise LaunchError(f"The configuration {path} must be a JSON object of options, as --export-config writes it.")
    options = {name.removeprefix("--").replace("-", "_"): value for name, value in found.items()}
    if unknown := sorted(set(options) - set(known)):
        raise LaunchError(f"The configuration {path} has options that poprun does not know: {', '.join(unknown)}.")
    kept = {name: value for name, value in options.items() if name not in given and name not in _OF_THE_CALL}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in kept.items()}


def write(path: Path, options: Mapping[str, Any], overwrite: bool) -> None:
    """The options that have a value, in a file."""
    if path.exists() and not overwrite:
        raise LaunchError(f"The configuration {path} exists. Give --overwrite-config=yes to replace it.")
    kept = {f"--{n.replace('_', '-')}": v for n, v in sorted(options.items()) if n not in _OF_THE_CALL}
    kept = {name: str(v) if isinstance(v, Path) else v for name, v in kept.items() if v not in (None, (), False, 0)}
    try:
        path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise LaunchError(f"The configuration {path} cannot be written: {error.strerror}.") from None


def versions(form: str) -> str:
    """poprun's version, or that of everything it needs."""
    if form == "text":
        return f"poprun {__version__} (openipu)"
    found = {"poprun": __version__, "popdist": __version__, "python": platform.python_version()}
    for name in ("jax", "jaxlib", "numpy", "click"):
        found[name] = metadata.version(name)
    if form == "full-json":
        return json.dumps(found, indent=2)
    return "\n".join(f"{name} {version}" for name, version in found.items())


def large_enough(ipus: int) -> dict[str, str]:
    """Variables that choose a larger virtual system, if the current one has too few IPUs for an instance."""
    system = hardware.current_system()
    size = hardware.group_size(ipus)
    return {} if size <= system.count else {"OPENIPU_SYSTEM": f"{size}x{system.target.name}"}
