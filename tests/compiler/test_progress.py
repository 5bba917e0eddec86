"""What a user sees of a compilation: its phases as they happen, and nothing when nothing is compiled."""

import contextlib
import io
import re
import sys
import threading
import time

import attrs
import jax.numpy as jnp
import numpy as np
import pytest

from openipu.compiler import Cache, compile_program, progress
from openipu.compiler.progress import PHASES
from openipu.compiler.progress_bar import Bar, Lines, display
from openipu.compiler.serialised import Loaded
from openipu.program import Plan, Program, Slot


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Recorder:
    """Remembers what a display is told."""

    def __init__(self):
        self.told, self.closed = [], False

    def update(self, progress):
        self.told.append((progress.name, progress.phase, progress.done, progress.finished))

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    for name in ("OPENIPU_PROGRESS", "OPENIPU_LOG", "TF_POPLAR_VLOG_LEVEL", "POPLAR_LOG_LEVEL", "POPTORCH_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)


def program(during=lambda: None):
    """A program that calls back whenever its step is traced."""

    def step(shared, local, batch, key):
        during()
        return [], [], [batch[0] + jnp.float32(1)]

    return Program("small", (), (), (Slot("x", (2,), np.float32),), step, identity="small")


def compiled(shown, of=None, cache=None):
    """Compile as the front ends do."""
    with progress.shown("small/train", shown):
        progress.begin("Capture")
        return compile_program(of or program(), Plan(), cache=cache)


def threads():
    return [t.name for t in threading.enumerate() if t.name == "openipu-progress" or isinstance(t, threading.Timer)]


def drawn(text):
    """The states of a bar, one after the other, without repetitions."""
    pattern = r"\x1b\[2K\r\[([# ]{50})\] (\d+)% (.*?) \[Elapsed: \d\d:\d\d:\d\d\.\d\]"
    states = [(m[1].count("#"), int(m[2]), m[3]) for m in re.finditer(pattern, text)]
    assert re.sub(pattern, "", text).replace("\n", "") == "Compiling module small/train:"
    return list(dict.fromkeys(states))


def test_phases_are_told_in_order_and_while_they_last():
    recorder, seen = Recorder(), []
    compiled(recorder, program(lambda: seen.append(recorder.told[-1][1])))
    expected = [("small/train", phase, number, False) for number, phase in enumerate(PHASES)]
    assert recorder.told == [*expected, ("small/train", PHASES[-1], len(PHASES), True)]
    assert recorder.closed
    assert seen[0] == "Lowering"  # That is when the step is traced.


def test_nobody_is_told_without_a_display_or_after_it():
    recorder = Recorder()
    compiled(None)
    compiled(recorder)
    count = len(recorder.told)
    progress.begin("Capture")
    progress.finish()
    assert len(recorder.told) == count


def test_the_bar_on_a_terminal():
    terminal = Terminal()
    compiled(Bar(terminal))
    text = terminal.getvalue()
    assert text.startswith("Compiling module small/train:\n") and text.endswith("]\n")
    states = drawn(text)
    assert states[-1] == (50, 100, "Compilation Finished")
    possible = [(round(50 * n / 4), 25 * n, f"Step: {phase}") for n, phase in enumerate(PHASES)]
    assert [s for s in possible if s in states] == states[:-1]
    assert threads() == []


def test_the_bar_is_redrawn_while_a_phase_lasts():
    terminal = Terminal()

    def wait():
        until(lambda: "Step: Lowering" in terminal.getvalue())
        size = len(terminal.getvalue())
        until(lambda: len(terminal.getvalue()) > size)

    compiled(Bar(terminal), program(wait))
    assert (12, 25, "Step: Lowering") in drawn(terminal.getvalue())


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "nothing was shown"
        time.sleep(0.005)


def test_a_compilation_that_fails_leaves_the_line_and_no_thread():
    def fail():
        raise ZeroDivisionError("the step")

    terminal, lines = Terminal(), io.StringIO()
    for shown in (Bar(terminal), Lines(lines), Lines(lines, patience=1e6)):
        with pytest.raises(ZeroDivisionError):
            compiled(shown, program(fail))
        assert threads() == []
    assert terminal.getvalue().endswith("]\n") and "100%" not in terminal.getvalue()
    assert drawn(terminal.getvalue())[-1] == (12, 25, "Step: Lowering")
    assert [line.split()[3] for line in lines.getvalue().splitlines()] == ["Capture", "Lowering"]
    recorder = Recorder()
    compiled(recorder)
    assert recorder.told[-1][-1]


def test_lines_where_there_is_no_terminal():
    stream = io.StringIO()
    compiled(Lines(stream))
    pattern = r"Compiling module small/train: (.*) \[Elapsed: \d\d:\d\d:\d\d\.\d\]"
    said = [re.fullmatch(pattern, line) for line in stream.getvalue().splitlines()]
    assert [s and s[1] for s in said] == [*(f"{phase} …" for phase in PHASES), "Compilation Finished"]


def test_lines_only_when_somebody_waits():
    stream = io.StringIO()
    compiled(Lines(stream, patience=1e6))
    assert stream.getvalue() == "" and threads() == []
    # The phase that lasts is named while it lasts.
    compiled(Lines(stream, patience=0.01), program(lambda: until(lambda: "Lowering …" in stream.getvalue())))
    assert [line.split()[3] for line in stream.getvalue().splitlines()] == [
        "Lowering",
        "Passes",
        "XLA",
        "Compilation",
    ]
    assert threads() == []


def test_an_executable_from_the_cache_shows_nothing(tmp_path):
    for again in (False, True):
        terminal, lines, recorder = Terminal(), io.StringIO(), Recorder()
        for number, shown in enumerate((Bar(terminal, "Lowering"), Lines(lines, "Lowering"), recorder)):
            kind = attrs.evolve(program(), identity=f"small {number}")
            executable = compiled(shown, kind, Cache(tmp_path))
            assert isinstance(executable.call, Loaded) is again
        assert [told[1] for told in recorder.told] == (["Capture"] if again else [*PHASES, PHASES[-1]])
        assert (terminal.getvalue() == "") is again
        # What was found may not be shown, so capture is not shown before that is known.
        assert "Capture" not in terminal.getvalue() + lines.getvalue()
        assert len(lines.getvalue().splitlines()) == (0 if again else 4)
    assert threads() == []


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("shown", [True, False, None])
@pytest.mark.parametrize("wish", ["on", "off", "auto", None])
@pytest.mark.parametrize("level", ["info", "warning", None])
def test_what_is_shown_where(monkeypatch, terminal, shown, wish, level):
    """`terminal`: whether both streams are one; both are files otherwise."""
    for name, value in (("OPENIPU_PROGRESS", wish), ("OPENIPU_LOG", level)):
        if value is not None:
            monkeypatch.setenv(name, value)
    out, error = (Terminal(), Terminal()) if terminal else (io.StringIO(), io.StringIO())
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", error)
    made = display(shown, "Capture")
    if wish == "off" or shown is False:
        assert made is None
        return
    asked = wish == "on" or shown is True
    if terminal and level == "info" and not asked:
        assert made is None  # Log lines and a bar would be written over each other.
        return
    if not terminal and not asked:
        assert made is None
        return
    assert isinstance(made, Bar if terminal else Lines)
    compiled(made)
    assert ("Compilation Finished" in out.getvalue()) is terminal
    assert ("Compilation Finished" in error.getvalue()) is not terminal


def test_somebody_who_keeps_only_the_results_sees_lines_once_they_wait(monkeypatch):
    screen, file = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", file)
    monkeypatch.setattr(sys, "stderr", screen)
    made = display(None, "Capture")
    assert isinstance(made, Lines)
    compiled(made)
    assert screen.getvalue() == file.getvalue() == ""  # Such a small program keeps nobody waiting.


def test_a_word_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("OPENIPU_PROGRESS", "loud")
    with pytest.raises(ValueError, match=r"OPENIPU_PROGRESS.*auto.*on.*off"):
        display(None, "Capture")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "00:00:00.0"), (12.34, "00:00:12.3"), (59.97, "00:01:00.0"), (3599.99, "01:00:00.0"), (3725.2, "01:02:05.2")],
)
def test_elapsed_time(monkeypatch, seconds, text):
    stream = io.StringIO()
    monkeypatch.setattr(progress.Progress, "seconds", seconds)
    with progress.shown("small", Lines(stream)):
        progress.begin("Capture")
    assert stream.getvalue() == f"Compiling module small: Capture … [Elapsed: {text}]\n"


def test_a_process_without_output_shows_nothing():
    with contextlib.redirect_stdout(None):
        assert display(None, PHASES[0]) is None
