"""Environment variables: values that are understood, and values that are refused."""

import json
import logging
import os
import subprocess
import sys
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openipu import environment
from openipu.environment import PoplarFlags
from openipu.environment.engine import KEYS
from openipu.environment.flags import parse
from openipu.environment.output import LEVELS, POPLAR_LEVELS
from openipu.environment.variable import declared


def flags(monkeypatch, text):
    monkeypatch.setenv("TF_POPLAR_FLAGS", text)
    return environment.poplar_flags()


def test_no_flags_are_the_defaults(monkeypatch):
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    assert environment.poplar_flags() == PoplarFlags()
    assert not environment.running_on_ipu_model()


def test_flags_with_and_without_values(monkeypatch):
    given = flags(
        monkeypatch, "--use_ipu_model --executable_cache_path=/tmp/x  --max_infeed_threads=-1 --allow_nans=false"
    )
    assert given == PoplarFlags(use_ipu_model=True, executable_cache_path="/tmp/x")
    assert environment.running_on_ipu_model()


def test_the_last_of_two_equal_flags_counts(monkeypatch):
    assert not flags(monkeypatch, "--allow_nans --allow_nans=false").allow_nans


@pytest.mark.parametrize("text", ["--no_such_flag", "use_ipu_model", "-allow_nans"])
def test_unknown_flags_are_refused_with_the_valid_ones(monkeypatch, text):
    with pytest.raises(ValueError, match=r"unknown flag.*--use_synthetic_data, .*Received"):
        flags(monkeypatch, text)


@pytest.mark.parametrize(
    "text, message",
    [
        ("--use_ipu_model=maybe", "true or false.*use_ipu_model=maybe"),
        ("--max_infeed_threads=many", "an integer"),
        ("--max_infeed_threads", "an integer"),
        ("--executable_cache_path /tmp/x", "a value after '='"),
        ("--synthetic_data_categories=infeed,weights", "infeed, outfeed, seed.*Received: weights"),
        ("--synthetic_data_initializer=random", "only has a meaning with"),
        ("--use_synthetic_data --synthetic_data_initializer=gamma", "or a number.*'gamma'"),
        ("--show_progress_bar=yes", "true, false or auto"),
        ("--on_demand_device_poll_time=5", "at least 100"),
    ],
)
def test_bad_values_are_refused(monkeypatch, text, message):
    with pytest.raises(ValueError, match=message):
        flags(monkeypatch, text)


def test_synthetic_categories(monkeypatch):
    chosen = flags(monkeypatch, "--synthetic_data_categories=infeed,parameters --synthetic_data_initializer=1.5")
    assert chosen.synthetic_categories == {"infeed", "parameters"}
    everything = flags(monkeypatch, "--use_synthetic_data --synthetic_data_initializer=uniform")
    assert everything.synthetic_categories == {"infeed", "outfeed", "seed", "hostembedding", "parameters"}


@given(st.dictionaries(st.sampled_from(PoplarFlags._fields), st.booleans()))
def test_every_boolean_flag_is_read_back(chosen):
    chosen = {name: value for name, value in chosen.items() if type(getattr(PoplarFlags(), name)) is bool}
    text = " ".join(f"--{name}={str(value).lower()}" for name, value in chosen.items())
    assert parse(text) == PoplarFlags(**chosen)


def test_help_prints_every_flag_and_ends_the_program(monkeypatch, capsys):
    with pytest.raises(SystemExit) as end:
        flags(monkeypatch, "--help")
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert all(f"--{name}" in printed for name in PoplarFlags._fields)


CHOICES = [variable for variable in declared() if variable.valid]


@pytest.mark.parametrize("variable", CHOICES, ids=lambda variable: variable.name)
def test_a_bad_value_is_refused_with_the_valid_ones(monkeypatch, variable):
    monkeypatch.setenv(variable.name, "no such value")
    with pytest.raises(ValueError, match="no such value") as refusal:
        variable.read()
    assert all(value in str(refusal.value) for value in (variable.name, *variable.valid))
    for value in variable.valid:
        monkeypatch.setenv(variable.name, f" {value.swapcase()} ")
        assert variable.read() == value
    monkeypatch.setenv(variable.name, " ")
    assert variable.read() == variable.default


@pytest.mark.parametrize(
    ("variables", "level"),
    [
        ({}, ""),
        ({"TF_POPLAR_VLOG_LEVEL": "0"}, ""),
        ({"TF_POPLAR_VLOG_LEVEL": "1"}, "info"),
        ({"TF_POPLAR_VLOG_LEVEL": "3"}, "debug"),
        ({"POPLAR_LOG_LEVEL": "err"}, "error"),
        ({"POPLAR_LOG_LEVEL": "OFF", "TF_POPLAR_VLOG_LEVEL": "1"}, "info"),
        ({"POPTORCH_LOG_LEVEL": "DEBUG_IR"}, "debug"),
        ({"POPTORCH_LOG_LEVEL": "TRACE", "POPLAR_LOG_LEVEL": "TRACE", "OPENIPU_LOG": "error"}, "error"),
    ],
)
def test_openipu_log_goes_first_and_else_the_most_talkative_level(monkeypatch, variables, level):
    for name in ("OPENIPU_LOG", "TF_POPLAR_VLOG_LEVEL", "POPLAR_LOG_LEVEL", "POPTORCH_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert environment.log_level() == level


def test_every_level_of_poplar_has_one_of_ours(monkeypatch):
    monkeypatch.delenv("OPENIPU_LOG", raising=False)
    found = []
    for name in POPLAR_LEVELS:
        monkeypatch.setenv("POPLAR_LOG_LEVEL", name)
        found.append(environment.log_level())
    assert set(found) == set(LEVELS) and found == sorted(found, key=LEVELS.index)


def test_an_unknown_engine_option_is_named_once_with_the_nearest_known(monkeypatch, caplog):
    misspelt = f"debug.retainDebugInformatio{uuid.uuid4().hex[:2]}"
    options = {misspelt: "true", "autoReport.all": "true", "exchange.anything": "1"}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    with caplog.at_level(logging.WARNING, "openipu"):
        assert environment.poplar_engine_options() == options
        environment.poplar_engine_options()
    (record,) = caplog.records
    assert misspelt in record.getMessage() and "'debug.retainDebugInformation'" in record.getMessage()
    assert "debug.retainDebugInformation" in KEYS


@pytest.mark.parametrize("text", ["[1]", "autoReport.all=true"])
def test_engine_options_that_are_no_json_object_are_refused(monkeypatch, text):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", text)
    with pytest.raises(ValueError, match="must be a JSON object"):
        environment.poplar_engine_options()


def test_a_misspelt_variable_is_warned_of_once(tmp_path):
    code = "from openipu import environment; environment.progress(); environment.progress(); environment.cache_dir()"
    variables = {**os.environ, "OPENIPU_PROGRES": "on"}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert done.stderr == "OPENIPU_PROGRES is set, but openipu has no such variable. Did you mean OPENIPU_PROGRESS?\n"


def test_a_child_gets_our_variables_and_the_changes(monkeypatch):
    monkeypatch.setenv("OPENIPU_SYSTEM", "2xbow")
    given = environment.for_child(OPENIPU_PROGRESS="off")
    assert given["OPENIPU_SYSTEM"] == "2xbow" and given["OPENIPU_PROGRESS"] == "off"
    assert "OPENIPU_PROGRESS" not in os.environ
