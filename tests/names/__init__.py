"""The public names of the original, one JSON file a package, and what it means to have them."""

import enum
import inspect
import json
from pathlib import Path


def read(package):
    """The inventory of a package: what is known of each name."""
    return json.loads((Path(__file__).parent / f"{package}.json").read_text())


def check(found, expected, namespace):
    """An object can be used as the original's: in the same calls, with the same defaults and members.

    Args:
      found: the object here.
      expected: what the inventory says of it.
      namespace: the names in the expressions of defaults.
    """
    if expected["kind"] == "enum":
        assert issubclass(found, enum.Enum)
        assert {name: member.value for name, member in found.__members__.items()} == expected["members"]
    if expected["kind"] == "class":
        assert isinstance(found, type)
    if "parameters" in expected:
        check_parameters(found, expected["parameters"], namespace)
    for method, parameters in expected.get("methods", {}).items():
        check_parameters(getattr(found, method), parameters, namespace)
    for name in expected.get("properties", ()):
        assert hasattr(found, name) or name in inspect.signature(found).parameters, name


def check_parameters(function, expected, namespace):
    """Parameters have the names, the order and the defaults of the original; more may follow if they have defaults."""
    found, variadic = parameters_of(function)
    wanted = [name for name in expected if not name.startswith("*")]
    same = list(found)[: len(wanted)]
    assert same == wanted or (variadic and same == wanted[: len(same)])
    needed = {name for name, p in found.items() if p.default is p.empty} - set(wanted)
    assert not needed or any(name.startswith("*") for name in expected), needed
    for name, text in expected.items():
        if name not in found:
            continue
        default = found[name].default
        assert (default is inspect.Parameter.empty) == (text is None), name
        if text is not None and not text.startswith("lambda"):
            assert default == eval(text, {**namespace}), name


def check_keywords(function, expected):
    """Every parameter of the original can be given by its name, and no other one is needed."""
    found, variadic = parameters_of(function)
    assert variadic or {name for name in expected if not name.startswith("*")} <= set(found)
    needed = {name for name, p in found.items() if p.default is p.empty}
    assert needed <= set(expected) or any(name.startswith("*") for name in expected)


def parameters_of(function):
    """Parameters by name, without those that stand for any number of others; and whether there are such ones."""
    found = {name: p for name, p in inspect.signature(function).parameters.items() if name != "self"}
    named = {name: p for name, p in found.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    return named, len(named) < len(found)
