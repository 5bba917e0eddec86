"""Reads reports back; a file that is none, is cut off, or is of another version is refused in one sentence."""

import json
from os import PathLike
from pathlib import Path

from openipu.errors import ReportError
from openipu.report.document import FORMAT, VERSION, Document

NAME = "report.json"

# What every document of this version has at the top.
_FIELDS = (
    "made", "program", "target", "plan", "options", "prediction", "measured", "stages", "memory", "operations",
    "pipeline", "suggestions", "warnings", "constants",
)  # fmt: skip


def read(path: str | PathLike[str]) -> Document:
    """The report in a file, or in the folder of one.

    Args:
      path: a `report.json` (or the `profile.pop` beside it), or a folder with one.
    """
    file = find(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ReportError(f"The report {file} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise ReportError(
            f"{file} is not a report of openipu: it is not text. Profiles of a real IPU are read by PopVision."
        ) from None
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        cut = " It ends too early: it was not copied whole." if error.pos >= len(text.rstrip()) else ""
        raise ReportError(
            f"The report {file} is not complete JSON (line {error.lineno}: {error.msg}).{cut} Make it again with "
            "`openipu report`."
        ) from None
    return _checked(found, file)


def find(path: str | PathLike[str]) -> Path:
    """The file of a report: the path itself, or the one report in a folder."""
    path = Path(path)
    if not path.is_dir():
        if not path.exists():
            raise ReportError(f"There is no report {path}. Expected a {NAME}, or a folder with one.")
        return path
    if (path / NAME).is_file():
        return path / NAME
    below = sorted(path.glob(f"*/{NAME}"))
    if len(below) == 1:
        return below[0]
    if not below:
        raise ReportError(f"There is no {NAME} in the folder {path}. Make one with `openipu report`.")
    names = ", ".join(str(file.parent) for file in below)
    raise ReportError(f"The folder {path} has several reports: {names}. Name one of them.")


def _checked(found: object, file: Path) -> Document:
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ReportError(f"{file} is JSON, but no report of openipu: its format must be {FORMAT!r}.")
    version = found.get("version")
    if version != VERSION:
        advice = "Update openipu" if isinstance(version, int) and version > VERSION else "Make it again"
        raise ReportError(
            f"The report {file} has version {version!r}; this openipu reads version {VERSION}. {advice}, or use the "
            "openipu that wrote it."
        )
    missing = [name for name in _FIELDS if name not in found]
    if missing:
        raise ReportError(f"The report {file} lacks {', '.join(missing)}. Make it again with `openipu report`.")
    return found
