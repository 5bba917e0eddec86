"""The poptorch namespace: every public name, and what an import costs."""

import enum
import importlib
import inspect
import json
import pathlib
import subprocess
import sys

import pytest
import torch

import openipu.errors
import poptorch
from openipu.torch.native import MACHINERY
from poptorch import _lazy

NAMES = json.loads((pathlib.Path(__file__).parent / "poptorch_names.json").read_text())


def find(name):
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def check_parameters(function, expected):
    """The names of parameters in their order, and their defaults, which are given as the text of an expression."""
    found = {n: p for n, p in inspect.signature(function).parameters.items() if n not in ("self", "stages_manager")}
    expected = {name: text for name, text in expected.items() if name != "stages_manager"}
    # What is ours can be given by name only, and need not be given.
    ours = {n for n, p in found.items() if p.kind is p.KEYWORD_ONLY and p.default is not p.empty and n not in expected}
    assert [name for name in found if name not in ours] == list(expected)
    for name, text in expected.items():
        default = found[name].default
        assert (default is inspect.Parameter.empty) == (text is None), name
        assert text is None or default == eval(text, {**vars(poptorch), "poptorch": poptorch}), name


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_public_name_is_what_the_reference_says(name):
    found, expected = find(name), NAMES[name]
    if expected["kind"] == "enum":
        assert issubclass(found, enum.Enum)
        assert {member.name: member.value for member in found} == expected["members"]
        return
    if expected["kind"] == "exception":
        assert issubclass(found, Exception)
    if expected["kind"] == "class":
        assert isinstance(found, type)
    if expected.get("parameters"):
        check_parameters(found, expected["parameters"])
    for method, given in expected.get("methods", {}).items():
        check_parameters(getattr(found, method), given)
    for attribute in expected.get("properties", ()):
        assert isinstance(inspect.getattr_static(found, attribute), property)


def test_an_unknown_name_is_an_ordinary_attribute_error():
    with pytest.raises(AttributeError, match="module 'poptorch' has no attribute 'nothing'"):
        _ = poptorch.nothing
    with pytest.raises(ImportError):
        from poptorch import nothing  # noqa: F401


def test_a_broken_dependency_of_a_lazy_module_is_not_hidden(monkeypatch, tmp_path):
    (tmp_path / "lazy_source.py").write_text("import a_module_that_is_missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_missing"):
        _lazy.resolve("poptorch", "x", "lazy_source")


def test_exported_names_exist():
    for module in ("poptorch", "poptorch.enums", "poptorch.options", "poptorch.poptorch_core", "popart"):
        loaded = importlib.import_module(module)
        assert [name for name in loaded.__all__ if not hasattr(loaded, name)] == []


LATE = ("jax", "torch._dynamo", "torch.export._trace", "openipu.torch.executor.executor", "tensorflow", "keras")
IMPORT = f"""
import multiprocessing, sys
import poptorch

def show():
    print(*[name for name in {LATE} if name in sys.modules], sep=", ", flush=True)

if __name__ == "__main__":
    show()
    for method in ("spawn", "forkserver"):
        process = multiprocessing.get_context(method).Process(target=show)
        process.start()
        process.join()
"""


def test_importing_loads_the_engine_but_not_into_processes_that_others_start(tmp_path):
    # The first step of a program waits for no import; workers that only load data do not wait for the engine.
    script = tmp_path / "script.py"
    script.write_text(IMPORT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [", ".join(LATE[:4]), "", ""]


INTERNAL = json.loads((pathlib.Path(__file__).parent / "poptorch_core_names.json").read_text())


@pytest.mark.parametrize("name", INTERNAL["functions"])
def test_a_function_of_the_native_module_works_or_is_refused_by_its_name(name):
    from poptorch import poptorch_core

    function = getattr(poptorch_core, name)
    assert callable(function)
    if name in MACHINERY:
        with pytest.raises(openipu.errors.UnsupportedError, match=f"poptorch_core.{name} "):
            function()


@pytest.mark.parametrize("schema", INTERNAL["operators"])
def test_an_operator_of_the_torch_library_has_the_schema_of_the_reference(schema):
    name = schema.partition("(")[0]
    assert str(getattr(torch.ops.poptorch, name).default._schema) == f"poptorch::{schema}"


def test_halves_of_constructs_are_refused_with_what_to_use():
    with pytest.raises(openipu.errors.UnsupportedError, match=r"start_for_loop .* Use poptorch.for_loop"):
        torch.ops.poptorch.start_for_loop([torch.ones(1)])


def test_options_are_validated_as_a_dict():
    options = poptorch.Options().outputMode(poptorch.OutputMode.All)
    poptorch.poptorch_core._validateOptions(options.toDict())
    options._Popart.set("noSuchOption", True)
    with pytest.raises(poptorch.Error, match="Unknown bool option noSuchOption"):
        poptorch.poptorch_core._validateOptions(options.toDict())


def test_all_names_of_operations_are_in_their_own_module():
    assert poptorch.ops.identity_loss is poptorch.identity_loss and poptorch.ops.Block is poptorch.Block


def test_the_names_of_the_native_module_are_the_same_objects():
    from poptorch import poptorch_core

    assert poptorch_core.Error is poptorch.Error
    assert poptorch.enums.OutputMode is poptorch.OutputMode
    assert poptorch.options.Options is poptorch.Options
    assert poptorch.__version__.startswith("3.4.0-")


def test_backend_enumerations_are_integers():
    import popart

    options = poptorch.Options()
    options._Popart.set("syntheticDataMode", popart.SyntheticDataMode.RandomNormal)
    assert options._Popart.options["syntheticDataMode"] == 2
    with pytest.raises(AttributeError, match="openipu has no PopART"):
        _ = popart.Builder
