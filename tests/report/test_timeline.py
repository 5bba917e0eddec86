"""Timelines read as they are drawn by hand, fit the screen, and can be written to files."""

import io
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from openipu.program.schedule import Kind, Schedule, timeline
from openipu.report.elide import ends
from openipu.report.timeline import plot, show, summary, to_html, to_png, to_text

GROUPED = """\
t    0  1  2     3     4     5  6
IPU0 F0 F1 F2    F3+B0 B1    B2 B3 | update
IPU1 .  F0 F1+B0 F2+B1 F3+B2 B3 .  | update"""

ELIDED = """\
t    0  1  2     3     4     5     … 29      30      31      32      33  34
IPU0 F0 F1 F2    F3+B0 F4+B1 F5+B2 … F29+B26 F30+B27 F31+B28 B29     B30 B31 | update
IPU1 .  F0 F1+B0 F2+B1 F3+B2 F4+B3 … F28+B27 F29+B28 F30+B29 F31+B30 B31 .   | update"""


@pytest.fixture
def training():
    return timeline(Schedule.GROUPED, 2, 4, True)


def test_text_is_the_drawing(training):
    assert to_text(training) == GROUPED


def test_a_long_steady_state_is_left_out():
    assert to_text(timeline(Schedule.GROUPED, 2, 32, True), width=86) == ELIDED


def test_stages_sharing_an_ipu_are_told_apart():
    line = timeline(Schedule.GROUPED, 3, 3, False, [0, 1, 0])
    assert to_text(line).splitlines()[1] == "IPU0 0:F0 0:F1 0:F2+2:F0 2:F1 2:F2"


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.sampled_from(Schedule), st.integers(1, 8), st.integers(1, 200), st.booleans(), st.sampled_from([60, 100, 120])
)
def test_text_fits_the_width(schedule, stages, count, training, width):
    rows = to_text(timeline(schedule, stages, count, training), width).splitlines()
    assert len(rows) == stages + 1
    assert max(map(len, rows)) <= width


def test_colours_only_in_a_terminal(training):
    plain, coloured = io.StringIO(), io.StringIO()
    show(training, Console(file=plain))
    show(training, Console(file=coloured, force_terminal=True, color_system="truecolor", width=120))
    assert plain.getvalue() == GROUPED + "\n"
    assert "\x1b[" in coloured.getvalue()


def test_a_narrow_terminal_gets_a_narrow_timeline():
    out = io.StringIO()
    show(timeline(Schedule.GROUPED, 4, 64, True), Console(file=out, force_terminal=True, color_system=None, width=70))
    assert max(map(len, out.getvalue().splitlines())) <= 70


def test_summary_counts_in_words(training):
    assert summary(training) == "Grouped training, 2 stages on 2 IPUs, 4 micro-batches: 7 time slots, bubble 20.0%"
    assert summary(timeline(Schedule.SEQUENTIAL, 1, 1, False)) == (
        "Sequential inference, 1 stage on 1 IPU, 1 micro-batch: 1 time slot, bubble 0.0%"
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(20, 100))
def test_elision_keeps_both_ends_within_the_room(widths, room):
    front, back = ends(widths, room, 2)
    if sum(widths) <= room:
        assert (front, back) == (len(widths), 0)
    else:
        assert front >= 1 and back >= 1 and front + back < len(widths)
        assert sum(widths[:front]) + sum(widths[len(widths) - back :]) + 2 <= room


@pytest.mark.parametrize(
    ("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".html", b"<!doctype html>"), (".PNG", b"\x89PNG")]
)
def test_plot_writes_what_the_suffix_says(training, tmp_path, suffix, magic):
    path = plot(training, tmp_path / f"line{suffix}")
    assert path.read_bytes().lower().startswith(magic.lower())


def test_a_picture_takes_durations_shared_ipus_and_long_executions(tmp_path):
    durations = {(stage, kind): 1e-3 * (1 + stage) for stage in range(3) for kind in Kind}
    line = timeline(Schedule.GROUPED, 3, 96, True, [0, 2, 0])
    to_png(line, tmp_path / "line")
    before = (tmp_path / "line").read_bytes()
    to_png(line, tmp_path / "line", durations)
    assert before.startswith(b"\x89PNG") and (tmp_path / "line").read_bytes() != before


def test_the_page_names_every_piece_of_work(training):
    page = to_html(training, full_page=False)
    for stage in range(2):
        assert page.count(f"backward\\u003c\\u002fb\\u003e, stage {stage}") == 4
    assert "weight update" in page and "20.0%" in page


def test_an_unknown_suffix_is_refused(training, tmp_path):
    with pytest.raises(ValueError, match=r"path must end in \.html, \.png or \.svg\. Received: path='.*line\.gif'"):
        plot(training, tmp_path / "line.gif")


@pytest.mark.parametrize(("library", "suffix"), [("matplotlib", ".png"), ("plotly", ".html")])
def test_a_missing_library_says_what_to_install(training, tmp_path, monkeypatch, library, suffix):
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"needs {library}\. Install it with: pip install openipu\[report\]"):
        plot(training, tmp_path / f"line{suffix}")
