"""`openipu demo` is the demo of `make demo`."""

import importlib.util

from click.testing import CliRunner

from openipu import demo
from openipu.cli.main import main


def test_the_command_runs_the_demo(monkeypatch):
    monkeypatch.setattr(demo, "main", lambda: print("the demo"))
    result = CliRunner().invoke(main, ["demo"])
    assert (result.exit_code, result.output) == (0, "the demo\n")


def test_without_tensorflow_it_says_what_to_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorflow" else find(name))
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 1 and "pip install 'openipu[tensorflow]'" in result.output
