"""Find oneDNN on this machine: the newest library of version 3, and headers that fit it.

Only the standard library is needed here: the build hook runs before anything is installed.
"""

import re
import site
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAJOR = 3

Version = tuple[int, int]


@dataclass(frozen=True)
class OneDNN:
    """A library and headers to compile against it.

    Attributes:
      library: the shared library.
      version: of the library, as its file says: (major, minor).
      include: the folder of headers that are not newer than the library; None if there are none.
    """

    library: Path
    version: Version
    include: Path | None


def find(chosen: str = "", conda: str = "") -> OneDNN | None:
    """The newest oneDNN 3 of this machine.

    Args:
      chosen: the only prefix to look in; empty for all the usual ones.
      conda: the prefix of the active conda environment, if there is one.
    """
    prefixes = [Path(chosen).expanduser()] if chosen else _prefixes(conda)
    libraries = [found for prefix in prefixes for found in _libraries(prefix)]
    if not libraries:
        return None
    # The first of equally new ones: `max` keeps it.
    version, library = max(libraries, key=lambda found: found[0])
    headers = [found for prefix in prefixes for found in _headers(prefix) if found[0] <= version]
    return OneDNN(library, version, max(headers, key=lambda found: found[0])[1] if headers else None)


def _prefixes(conda: str) -> list[Path]:
    named = [conda, sys.prefix, site.getuserbase(), sys.base_prefix, "/usr/local", "/usr"]
    return list(dict.fromkeys(Path(name) for name in named if name))


def _libraries(prefix: Path) -> Iterator[tuple[Version, Path]]:
    for folder in ("lib", "lib64", f"lib/{sysconfig.get_config_var('MULTIARCH') or ''}"):
        library = prefix / folder / f"libdnnl.so.{MAJOR}"
        if library.is_file():
            # A link to the file with the whole version, or, in a wheel, a copy beside it.
            names = [library.resolve().name, *(path.name for path in library.parent.glob(f"{library.name}.*"))]
            minors = [int(m[1]) for name in names if (m := re.match(rf"libdnnl\.so\.{MAJOR}\.(\d+)", name))]
            yield (MAJOR, max(minors, default=0)), library


def _headers(prefix: Path) -> Iterator[tuple[Version, Path]]:
    include = prefix / "include"
    try:
        text = (include / "oneapi" / "dnnl" / "dnnl_version.h").read_text(encoding="utf-8")
    except OSError:
        return
    numbers = dict(re.findall(r"#define DNNL_VERSION_(MAJOR|MINOR)\s+(\d+)", text))
    if numbers.get("MAJOR") == str(MAJOR) and "MINOR" in numbers:
        yield (MAJOR, int(numbers["MINOR"])), include
