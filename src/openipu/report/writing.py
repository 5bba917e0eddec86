"""Writes reports: a file appears whole or not at all, and a folder that cannot be written is refused beforehand."""

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path

from openipu.errors import ReportError
from openipu.report.document import Document
from openipu.report.page import page
from openipu.report.reading import NAME

PAGE = "report.html"
# What programs of the original look for: the same document under the name that Poplar's profiles have.
PROFILE = "profile.pop"


def check_folder(folder: Path) -> None:
    """Makes a folder for reports, with those above it; refused if nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _refusal(folder, error) from None


def write(folder: Path, document: Document) -> Path:
    """Writes a report into a folder: the document, and the page that shows it.

    Returns:
      The page.
    """
    # Both texts are made before either file is touched.
    text, html = json.dumps(document, separators=(",", ":"), allow_nan=False), page(document)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / NAME, text)
        write_text(folder / PAGE, html)
        _link(folder)
    except OSError as error:
        raise _refusal(folder, error) from None
    return folder / PAGE


def write_text(path: Path, text: str) -> None:
    """Writes a file beside its place and moves it there."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        # As any new file of this user: temporary ones are for the user alone.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _link(folder: Path) -> None:
    profile = folder / PROFILE
    if profile.is_symlink() and os.readlink(profile) == NAME:
        return
    profile.unlink(missing_ok=True)
    try:
        profile.symlink_to(NAME)
    except OSError:
        # File systems without links.
        shutil.copyfile(folder / NAME, profile)


def _refusal(folder: Path, error: OSError) -> ReportError:
    return ReportError(
        f"The report directory {folder} cannot be written: {error.strerror or error}. Choose another one "
        "(autoReport.directory in POPLAR_ENGINE_OPTIONS, or `openipu report --output`)."
    )
