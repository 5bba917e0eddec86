"""`docs/compatibility.md` is what the inventories and the notes say."""

import importlib
import json
from pathlib import Path

import pytest

from openipu.compatibility import Status, note_of, page, refused
from openipu.compatibility.packages import PACKAGES
from openipu.tensorflow.refusals import Refused, refused_class, refused_function

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date():
    written = (ROOT / page.PATH).read_text(encoding="utf-8")
    assert written == page.page(ROOT), "Run `python -m openipu.compatibility.page` in the root of the repository."


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.title)
def test_notes_are_about_names_of_the_package(package):
    inventories = [json.loads((ROOT / p.inventory).read_text()) for p in PACKAGES if p.notes == package.notes]
    names = {name.removeprefix(f"{package.root}.") for inventory in inventories for name in inventory}
    for key in importlib.import_module(package.notes).NOTES:
        start = key.rstrip("*")
        owned = any(
            name.startswith(start) if "*" in key else key == name or key.startswith(f"{name}.") for name in names
        )
        assert owned, f"{package.notes} has a note about {key}, which is no public name of {package.root}."


def test_what_refuses_carries_its_reason():
    entry = Refused("nobody knows how", "Ask.")
    for found in (refused_function("ipu.f", entry), refused_class("module", "ipu.C", entry)):
        assert note_of(found) == refused("nobody knows how")


def test_a_subclass_does_not_inherit_a_note():
    base = refused_class("module", "ipu.C", Refused("nobody knows how", "Ask."))
    assert note_of(type("Mine", (base,), {})) is None


def test_every_refused_name_of_the_page_gives_a_reason():
    for package in PACKAGES:
        for _, name, note in page.rows(package, ROOT):
            assert note.status is Status.WORKS or note.remark, name
