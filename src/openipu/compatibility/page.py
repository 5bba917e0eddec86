"""Writes `docs/compatibility.md` from the inventories and the notes: `python -m openipu.compatibility.page`."""

import fnmatch
import importlib
import itertools
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from openipu.compatibility.note import Note, Status, note_of
from openipu.compatibility.packages import PACKAGES, Package
from openipu.markdown import table

PATH = Path("docs") / "compatibility.md"

TOP = """\
# Compatibility

Every public name of the original, and what it does here. *Works*: as in the original. *Accepted, no effect*: it can be
used and changes nothing, because it tunes hardware that is not here. *Refused*: it raises one clear error, which says
what to use instead. *Missing*: there is no such name yet. This page is written by
`python -m openipu.compatibility.page` from the names in `tests/names` and the notes next to the code;
`src/openipu/compatibility/__init__.py` says how to add a package.
"""


def page(root: Path) -> str:
    """The whole page.

    Args:
      root: of the repository, where the inventories are.
    """
    found = {package.title: list(rows(package, root)) for package in PACKAGES}
    parts = [TOP, _summary(found)]
    for package in PACKAGES:
        parts.append(f"## {package.title}\n")
        if package.introduction:
            parts.append(f"{package.introduction}\n")
        for module, group in itertools.groupby(found[package.title], key=lambda row: row[0]):
            lines = [(f"`{name}`", note.status.value, note.remark) for _, name, note in group]
            parts.append(f"### `{module}`\n\n" + table(("name", "here", "remark"), lines))
    return "\n".join(parts)


def find(name: str) -> Any:
    """The object of a dotted name: modules as far as they go, attributes after that."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if not error.name or not name.startswith(error.name):
                raise
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise AttributeError(f"There is no {name}.")


def note_for(name: str, package: Package, notes: Mapping[str, Note]) -> Note:
    """What is to be said of a name: what the table says, else what the object says, else that it works."""
    short = name.removeprefix(f"{package.root}.")
    found = notes.get(short) or next((note for key, note in notes.items() if fnmatch.fnmatchcase(short, key)), None)
    try:
        own = note_of(find(name))
    except AttributeError:
        return Note(Status.MISSING, "not there yet")
    return found or own or Note(Status.WORKS)


def rows(package: Package, root: Path) -> Iterable[tuple[str, str, Note]]:
    """Module, name and note of each name, and of those of its members that have a note of their own."""
    notes = importlib.import_module(package.notes).NOTES
    newer = json.loads((root / package.newer).read_text()) if package.newer else {}
    entries = json.loads((root / package.inventory).read_text())
    for name in sorted(entries, key=lambda name: name.rpartition(".")[::2]):
        module, _, short = name.rpartition(".")
        if entries[name]["kind"] == "alias" or name in newer:
            continue
        yield module, short, note_for(name, package, notes)
        prefix = f"{name.removeprefix(package.root + '.')}."
        for key in sorted(key for key in notes if key.startswith(prefix) and "*" not in key):
            yield module, f"{short}.{key.removeprefix(prefix)}", notes[key]


def _summary(rows: Mapping[str, list[tuple[str, str, Note]]]) -> str:
    lines = [
        (title, *(str(sum(note.status is status for *_, note in group)) for status in Status))
        for title, group in rows.items()
    ]
    return table(("package", *(status.value for status in Status)), lines)


def main() -> None:
    """Write the page into the repository whose root is the current directory."""
    if not PATH.parent.is_dir():
        sys.exit(f"There is no folder {PATH.parent} here. Run this in the root of the repository.")
    PATH.write_text(page(Path()), encoding="utf-8")
    print(f"Wrote {PATH}")


if __name__ == "__main__":
    main()
