"""PopTorch's progress bar, "Graph compilation": of what is compiled, where it is wanted."""

import io
import re
import sys

import pytest
import torch
from torch import nn

import poptorch
from openipu.compiler import progress
from openipu.compiler.progress import PHASES
from openipu.torch.executor.progress import GraphCompilation


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """`terminal()`: makes a terminal stdout and stderr; nothing in the environment speaks against a bar on it."""
    for name in ("OPENIPU_PROGRESS", "OPENIPU_LOG", "OPENIPU_CACHE", "POPTORCH_CACHE_DIR", "POPTORCH_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)

    def begin():
        made = Terminal()
        monkeypatch.setattr(sys, "stdout", made)
        monkeypatch.setattr(sys, "stderr", made)
        return made

    return begin


def compiled(options=None, model=None):
    executor = poptorch.inferenceModel(model or nn.Linear(2, 2), options)
    executor.compile(torch.ones(1, 2))
    return executor


def test_every_phase_moves_the_bar(terminal):
    screen = terminal()
    compiled()
    text = screen.getvalue()
    states = text.split("\r")
    assert all(state.startswith("Graph compilation:") for state in states if state.strip())
    shown = [int(found[1]) for found in re.finditer(r"(\d+)%", text)]
    assert shown == sorted(shown) and {0, 25, 50, 75, 100} <= set(shown)
    for number, phase in enumerate(PHASES):
        assert any(f" {25 * number}%" in state and phase in state for state in states), phase
    assert "100/100" in states[-1] and states[-1].endswith("\n")


def test_a_phase_is_shown_as_soon_as_it_begins(terminal):
    screen = terminal()
    with progress.shown("Linear", GraphCompilation(screen)):
        for number, phase in enumerate(PHASES):
            progress.begin(phase)
            last = screen.getvalue().split("\r")[-1]
            assert f"{25 * number}%" in last and phase in last


def test_a_compilation_that_fails_leaves_the_line(terminal):
    class Broken(nn.Module):
        def forward(self, x):
            raise ZeroDivisionError("forward")

    screen = terminal()
    with pytest.raises(ZeroDivisionError):
        compiled(model=Broken())
    assert screen.getvalue().endswith("\n") and "100%" not in screen.getvalue()


def test_nothing_is_shown_when_nobody_wants_it(terminal, monkeypatch):
    screen = terminal()
    compiled(poptorch.Options().showCompilationProgressBar(False))
    monkeypatch.setenv("OPENIPU_PROGRESS", "off")
    compiled()
    assert screen.getvalue() == ""


def test_without_a_terminal_lines_are_written_when_asked_for(terminal, monkeypatch, capsys):
    compiled()
    assert capsys.readouterr().err == ""  # Such a small model keeps nobody waiting.
    monkeypatch.setenv("OPENIPU_PROGRESS", "on")
    compiled()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(PHASES) + 1
    assert all(line.startswith("Compiling module Linear: ") for line in lines)


def test_an_executable_from_the_cache_shows_nothing(terminal, tmp_path):
    options = poptorch.Options().enableExecutableCaching(str(tmp_path))
    screen = terminal()
    compiled(options.clone())
    assert "100%" in screen.getvalue()
    screen = terminal()
    compiled(options.clone())
    assert screen.getvalue() == ""


def test_an_executable_from_a_file_shows_nothing(terminal, tmp_path):
    compiled(poptorch.Options().showCompilationProgressBar(False)).save(str(tmp_path / "file"))
    screen = terminal()
    executor = poptorch.inferenceModel(nn.Linear(2, 2))
    executor.loadExecutable(str(tmp_path / "file"))
    assert executor.isCompiled() and screen.getvalue() == ""
