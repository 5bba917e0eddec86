"""`openipu report` runs a program and says where its report is, compares reports, and refuses the rest in a line."""

import json

import pytest

from openipu.cli.report import report
from openipu.report.reading import read
from openipu.report.writing import write
from tests.report.samples import sample_document

# Trains nothing, imports nothing.
IDLE = "print('hello from the script')\n"
# What a training program leaves behind, without the minute it takes.
WRITES = """
import json, os
from pathlib import Path
from openipu.report.writing import write
from tests.report.samples import sample_document
options = json.loads(os.environ["POPLAR_ENGINE_OPTIONS"])
assert options["autoReport.all"] == "true" and options["debug.instrument"] == "true"
for name, stages in (("model/train", 2), ("model/test", 1)):
    document = sample_document(name=name, stages=stages, training=stages == 2)
    write(Path(options["autoReport.directory"], name.replace("/", "_")), document)
"""


def test_the_reports_of_a_program_are_summed_up_and_named(call, script, tmp_path, monkeypatch):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps({"debug.instrument": "true"}))
    result = call(report, "-o", str(tmp_path / "out"), script(WRITES), columns=200)
    assert result.exit_code == 0, result.output
    assert "Predicted for Bow IPUs" in result.output and "measured on this machine" in result.output
    assert result.output.index("model/train") < result.output.index("model/test")
    assert str(tmp_path / "out" / "model_train" / "report.html") in result.output


def test_only_the_reports_of_this_run_are_shown(call, script, tmp_path):
    write(tmp_path / "out" / "old", sample_document(name="from yesterday"))
    result = call(
        report, "-o", str(tmp_path / "out"), script(WRITES.replace(' and options["debug.instrument"] == "true"', ""))
    )
    assert result.exit_code == 0 and "yesterday" not in result.output


def test_a_script_that_trains_nothing_is_one_error_and_leaves_nothing(call, script, tmp_path):
    result = call(report, "-o", str(tmp_path / "out"), script(IDLE))
    assert result.exit_code == 1
    assert "compiled no program for IPUs: there is nothing to report" in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()


def test_a_script_that_fails_is_named_with_its_exit_code(call, script, tmp_path):
    result = call(report, "-o", str(tmp_path / "out"), script("raise SystemExit(7)"))
    assert result.exit_code == 1 and "ended with exit code 7" in result.output


def test_a_directory_that_cannot_be_written_is_refused_before_the_script_runs(call, script, tmp_path):
    (tmp_path / "taken").write_text("a file")
    ran = tmp_path / "ran"
    result = call(report, "-o", str(tmp_path / "taken"), script(f"open({str(ran)!r}, 'w')"), columns=300)
    assert result.exit_code == 1 and "cannot be written" in result.output
    assert not ran.exists() and (tmp_path / "taken").read_text() == "a file"


@pytest.mark.parametrize(("arguments", "message"), [
    ((), "Expected a program"), (("nowhere.py",), "There is no program 'nowhere.py'"), (("--compre", "a"), "--compare"),
    (("--system", "5xipu", "x.py"), "There is no program"),
])  # fmt: skip
def test_what_is_no_program_is_refused(call, arguments, message):
    result = call(report, *arguments, columns=200)
    assert result.exit_code == 2 and message in result.output


def test_two_reports_become_one_page(call, tmp_path):
    write(tmp_path / "a", sample_document(name="before"))
    write(tmp_path / "b", sample_document(name="after", stages=1))
    page = tmp_path / "new" / "both.html"
    result = call(report, "--compare", str(tmp_path / "a"), str(tmp_path / "b" / "report.json"), "-o", str(page))
    assert result.exit_code == 0, result.output
    text = page.read_text(encoding="utf-8")
    assert "before" in text and "after" in text and "<title>before and after" in text


def test_a_report_that_cannot_be_read_leaves_no_comparison(call, tmp_path):
    write(tmp_path / "a", sample_document())
    write(tmp_path / "b", sample_document())
    for spoilt in (
        json.dumps({**read(tmp_path / "b"), "version": 7}),
        (tmp_path / "b" / "report.json").read_text()[:99],
    ):
        (tmp_path / "b" / "report.json").write_text(spoilt)
        result = call(report, "--compare", "-o", str(tmp_path / "c.html"), str(tmp_path / "a"), str(tmp_path / "b"))
        assert result.exit_code == 1 and result.output.startswith("Error: The report ")
        assert not (tmp_path / "c.html").exists()
    result = call(report, "--compare", str(tmp_path / "a"))
    assert result.exit_code == 2 and "takes two reports" in result.output
    result = call(report, "--compare", "-o", str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a"))
    assert result.exit_code == 2 and "must end in .html" in " ".join(result.output.split())
