"""`--show_progress_bar` and the terminal decide whether a program of TensorFlow's shows its compilation."""

import io
import sys

import pytest
import tensorflow as tf


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def shown(strategy, monkeypatch):
    """`shown(flags, terminal)`: what a new program writes to stdout and stderr while it is compiled."""
    for name in ("OPENIPU_PROGRESS", "OPENIPU_LOG", "OPENIPU_CACHE", "TF_POPLAR_VLOG_LEVEL", "POPLAR_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)

    def run(flags="", terminal=True):
        monkeypatch.setenv("TF_POPLAR_FLAGS", flags)
        out, error = Terminal() if terminal else io.StringIO(), io.StringIO()

        @tf.function
        def step(x):
            return x * 5.0

        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", out)
            patched.setattr(sys, "stderr", error)
            assert float(strategy.run(step, (tf.constant(2.0),))) == 10.0
        return out.getvalue(), error.getvalue()

    return run


def test_a_terminal_gets_the_bar(shown):
    for flags in ("", "--show_progress_bar=auto", "--show_progress_bar=true"):
        out, error = shown(flags)
        assert out.startswith("Compiling module step:\n") and "100% Compilation Finished" in out
        assert error == ""


def test_a_file_gets_lines_when_they_are_asked_for(shown):
    out, error = shown("--show_progress_bar=true", terminal=False)
    assert out == ""
    lines = error.splitlines()
    assert len(lines) == 5 and all(line.startswith("Compiling module step: ") for line in lines)
    assert "Capture" in lines[0] and "Compilation Finished" in lines[-1]


def test_nothing_is_shown_when_nobody_wants_it(shown, monkeypatch):
    assert shown("--show_progress_bar=false") == ("", "")
    monkeypatch.setenv("OPENIPU_PROGRESS", "off")
    assert shown("--show_progress_bar=true") == ("", "")


def test_log_lines_and_a_bar_do_not_mix(shown, monkeypatch):
    monkeypatch.setenv("TF_POPLAR_VLOG_LEVEL", "1")
    assert shown() == ("", "")
    assert "100% Compilation Finished" in shown("--show_progress_bar=true")[0]


def test_an_executable_from_the_cache_shows_nothing(shown, tmp_path):
    flags = f"--executable_cache_path={tmp_path} --show_progress_bar=true"
    assert "100% Compilation Finished" in shown(flags)[0]
    assert shown(flags) == ("", "")
