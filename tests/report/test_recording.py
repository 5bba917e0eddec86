"""A program is recorded where it is compiled, whatever front end it is from: predicted at once, measured at the end."""

import json
from importlib import resources

import attrs
import jsonschema
import numpy as np
import pytest

from openipu.errors import ReportError
from openipu.program import Plan
from openipu.report.reading import read
from openipu.report.recording import finish_all
from openipu.report.watching import report_directory, watch_for
from openipu.runtime import Resident, Session, Setting
from openipu.runtime.watching import nobody
from tests.model.toy import network
from tests.planner.programs import LAYERS, cnn

PLAN = Plan(device_iterations=2)
SMALL = attrs.evolve(network(width=4, layers=1, batch=2), name="small")


def session(options, program=None):
    program = program or cnn(batch=2, width=4)
    setting = Setting(watch=watch_for("tensorflow", options, lambda program: f"report of {program.name}"))
    shared = [Resident(read=lambda s=s: np.ones(s.shape, s.dtype), write=lambda _: None) for s in program.shared]
    return Session(program, PLAN, shared, [], setting)


def test_what_is_predicted_is_there_at_once_and_what_was_measured_at_the_end(tmp_path):
    made = session({"autoReport.all": "true", "autoReport.directory": str(tmp_path / "reports")})
    folder = tmp_path / "reports" / "report of cnn"
    first = read(folder)
    assert first["measured"]["executions"] == 0 and first["measured"]["compile_seconds"] > 0
    feeds = [np.zeros((2, *slot.shape), slot.dtype) for slot in made.program.batch]
    for _ in range(3):
        made.run(made.place(lambda: feeds), [0])
    finish_all()
    last = read(folder)
    assert last["measured"]["executions"] == 3 and len(last["measured"]["seconds"]) == 3
    assert last["measured"]["throughput"] == pytest.approx(2 * 2 / last["measured"]["typical_seconds"])
    assert {**first, "measured": None} == {**last, "measured": None}
    schema = json.loads(resources.files("openipu.report").joinpath("schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(last, schema)
    assert set(LAYERS) <= {operation["layer"] for operation in last["operations"]}
    assert last["program"]["inputs"][0] == {"name": "images", "shape": [2, 16, 16, 3], "dtype": "float32"}


def test_the_number_of_executions_that_are_listed_is_an_option(tmp_path):
    options = {"autoReport.all": "true", "autoReport.directory": str(tmp_path)}
    count = "autoReport.executionProfileProgramRunCount"
    made = session({**options, count: "2"}, SMALL)
    for seconds in (3.0, 1.0, 1.0):
        made._watcher.executed(seconds)
    finish_all()
    measured = read(tmp_path / "report of small")["measured"]
    assert measured["executions"] == 3 and measured["seconds"] == [3.0, 1.0]
    with pytest.raises(ReportError, match=r"must be a positive whole number\. Received: 'many'"):
        session({**options, count: "many"})


def test_nobody_looks_unless_asked(monkeypatch):
    monkeypatch.delenv("OPENIPU_PLAN", raising=False)
    assert watch_for("tensorflow", {"autoReport.directory": "here"}, str) is nobody
    assert report_directory({"autoReport.outputExecutionProfile": "True"}).name == ""
    assert report_directory({"autoReport.all": "false"}) is None


def test_a_directory_that_cannot_be_written_is_refused_before_anything_is_compiled(tmp_path):
    (tmp_path / "taken").write_text("a file")

    def never(*_):
        raise AssertionError("traced")

    program = attrs.evolve(cnn(), step=never)
    with pytest.raises(ReportError, match=r"The report directory .*taken cannot be written"):
        session({"autoReport.all": "true", "autoReport.directory": str(tmp_path / "taken")}, program)


def test_a_model_of_the_ipu_that_fails_stops_no_training(tmp_path, monkeypatch, caplog):
    def broken(*_):
        raise ZeroDivisionError("in the model")

    monkeypatch.setattr("openipu.report.recording.model.estimate", broken)
    session({"autoReport.all": "true", "autoReport.directory": str(tmp_path)}, SMALL)
    assert "There is no report of small" in caplog.text
    assert list(tmp_path.iterdir()) == []
