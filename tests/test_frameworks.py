"""A framework of the wrong release is refused in one line, and what has gone from one is named."""

import importlib.metadata
import subprocess
import sys

import pytest

from openipu import frameworks
from openipu.frameworks import Private


@pytest.mark.parametrize("name, version", [("tensorflow", "2.20.0"), ("tf-keras", "2.22.0"), ("jax", "0.9.1")])
def test_a_release_that_does_not_fit_is_refused_in_one_line(monkeypatch, name, version):
    monkeypatch.delitem(sys.modules, name.replace("-", "_"), raising=False)
    monkeypatch.setattr(importlib.metadata, "version", lambda asked: version)
    with pytest.raises(ImportError) as refusal:
        frameworks.require(name)
    message = str(refusal.value)
    assert message.startswith(f"openipu needs {name}") and f"{name} {version} is installed" in message
    assert "\n" not in message and "openipu doctor" in message


def test_what_is_installed_here_fits():
    frameworks.require("jax", "tensorflow", "keras", "tf-keras", "torch")


def test_what_nobody_asked_for_or_installed_is_left_to_others(monkeypatch):
    def nothing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", nothing)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    frameworks.require("torch", "a-package-of-nobody")


@pytest.mark.parametrize("package", ["openipu.tensorflow", "poptorch"])
def test_a_front_end_is_not_imported_with_the_wrong_framework(package):
    framework = "torch" if package == "poptorch" else "tensorflow"
    code = (
        "import importlib.metadata as m\n"
        "real = m.version\n"
        f"m.version = lambda name: '1.0' if name == '{framework}' else real(name)\n"
        f"import {package}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: openipu needs {framework}=="), done.stderr


def test_what_has_gone_is_named_with_what_it_was_for():
    table = [
        Private("email.message.Message", "it is there"),
        Private("email.message.Message._headers", "objects get it when they are made"),
        Private("email.message.Message._wings", "messages fly"),
        Private("email.pigeons.send", "messages fly"),
    ]
    assert [line.split(" is gone from email ")[0] for line in frameworks.missing(table)] == [
        "email.message.Message._wings",
        "email.pigeons.send",
    ]
    assert all(line.endswith("openipu needs it: messages fly.") for line in frameworks.missing(table))
