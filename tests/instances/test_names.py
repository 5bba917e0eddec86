"""Every name of popdist's inventory is there, with its parameters."""

import importlib
import inspect
import json
import pathlib
import re

import pytest

NAMES = json.loads((pathlib.Path(__file__).parents[1] / "names" / "popdist.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_inventory_has_its_parameters(name):
    module, _, short = name.rpartition(".")
    found = getattr(importlib.import_module(module), short)
    given = re.search(r"\((.*)\)", NAMES[name]["signature"])[1]
    wanted = [
        part.split(":")[0].split("=")[0].strip().lstrip("*") for part in re.split(r",(?![^\[]*\])", given) if part
    ]
    assert [p for p in inspect.signature(found).parameters if p != "self"][: len(wanted)] == wanted
