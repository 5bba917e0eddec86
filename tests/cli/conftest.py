"""A pod and settings of their own for every test, and programs that hold IPUs of it."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from openipu import hardware
from tests.holder import Holder


@pytest.fixture
def pod(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENIPU_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("OPENIPU_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.delenv("OPENIPU_SYSTEM", raising=False)
    yield
    for device in hardware.attached():
        hardware.detach(device)


@pytest.fixture
def program(pod):
    """A program in a process of its own; see `tests.holder`."""
    holder = Holder().started()
    yield holder
    holder.end()


@pytest.fixture
def call(pod, monkeypatch):
    """`call(command, *arguments, columns=80)`: what a user sees who types it."""

    def typed(command, *arguments, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        return CliRunner().invoke(command, arguments)

    return typed


@pytest.fixture
def piped(pod):
    """`piped(name, *arguments)`: the output of the command in a process of its own."""

    def run(name, *arguments, **variables):
        unset = {"COLUMNS", "LINES"}
        return subprocess.run(
            [sys.executable, "-m", f"openipu.cli.{name}", *arguments],
            env={**{key: value for key, value in os.environ.items() if key not in unset}, **variables},
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture
def script(tmp_path, monkeypatch):
    """`script(text)`: a program of the user's, which finds openipu and its tests."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]))

    def written(text):
        (tmp_path / "train.py").write_text(text)
        return str(tmp_path / "train.py")

    return written
