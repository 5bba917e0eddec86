"""Enumerations' neighbours: exceptions, logging, hardware questions, structures and the testing helpers."""

import collections
import logging
import pickle

import pytest
import torch

import poptorch
import poptorch.testing
from openipu.torch import structures, tracing
from openipu.torch.logger import logger
from poptorch import poptorch_core


@pytest.fixture
def level():
    before = logger.level
    yield
    logger.setLevel(before)


def test_errors_carry_their_message_type_and_location():
    error = poptorch.createPoptorchError("no loss")
    assert isinstance(error, poptorch.Error)
    assert (error.message, error.type, error.location) == ("no loss", "poptorch_py_error", "")
    assert str(error) == "'poptorch_py_error': no loss"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("kind", list(poptorch_core.TestErrorType))
def test_errors_of_the_backend(kind):
    with pytest.raises(poptorch.Error) as caught:
        poptorch_core._throwTestError(kind)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value) and again.type == caught.value.type
    recoverable = kind is poptorch_core.TestErrorType.PoplarRecoverableFullReset
    assert isinstance(again, poptorch.RecoverableError) == recoverable
    if recoverable:
        assert again.recovery_action == "FULL_RESET"
        assert "Recovery action required: FULL_RESET" in str(again)
    unrecoverable = kind is poptorch_core.TestErrorType.PoplarUnrecoverable
    assert isinstance(again, poptorch.UnrecoverableError) == unrecoverable


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("TRACE", logging.DEBUG),
        ("WARN", logging.WARNING),
        ("ERR", logging.ERROR),
        (2, logging.INFO),
        (6, logging.CRITICAL),
    ],
)
def test_log_levels(level, given, expected):
    poptorch.setLogLevel(given)
    assert logging.getLogger("poptorch::python").level == expected


def test_unknown_log_levels(level):
    for wrong in (5, 7, -1):
        with pytest.raises(ValueError, match="Invalid log level integer"):
            poptorch.setLogLevel(wrong)
    with pytest.raises(
        ValueError, match=r"Unknown log level: LOUD\. Valid values are DEBUG, ERR, INFO, OFF, TRACE and WARN"
    ):
        poptorch.setLogLevel("LOUD")


def test_log_lines(level, capsys):
    poptorch.setLogLevel("INFO")
    logger.info("%d lines", 3)
    assert " [poptorch::python] [info] 3 lines" in capsys.readouterr().err


def test_the_virtual_system_is_hardware(monkeypatch):
    monkeypatch.setenv("OPENIPU_SYSTEM", "bow-pod4")
    monkeypatch.delenv("POPTORCH_IPU_MODEL", raising=False)
    assert poptorch.ipuHardwareIsAvailable()
    assert poptorch.ipuHardwareIsAvailable(4) and not poptorch.ipuHardwareIsAvailable(5)
    assert poptorch.ipuHardwareVersion() == 2
    monkeypatch.setenv("OPENIPU_SYSTEM", "1xc600")
    assert poptorch.ipuHardwareVersion() == 21
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "1")
    assert not poptorch.ipuHardwareIsAvailable()
    with pytest.raises(AssertionError, match="No IPU hardware available on this system"):
        poptorch.ipuHardwareVersion()
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "maybe")
    with pytest.raises(ValueError, match="POPTORCH_IPU_MODEL must be one of"):
        poptorch.ipuHardwareIsAvailable()


def test_running_on_the_ipu_is_being_captured():
    assert not poptorch.isRunningOnIpu()
    with tracing.capturing():
        assert poptorch.isRunningOnIpu()
    assert not poptorch.isRunningOnIpu()


Point = collections.namedtuple("Point", "x y")


def test_structures_keep_their_types():
    nested = {"a": [1, (2, Point(3, 4))], "b": collections.OrderedDict(c=5)}
    assert structures.leaves(nested) == [1, 2, 3, 4, 5]
    doubled = structures.map_leaves(lambda leaf: 2 * leaf, nested)
    assert doubled == {"a": [2, (4, Point(6, 8))], "b": collections.OrderedDict(c=10)}
    assert type(doubled["b"]) is collections.OrderedDict and type(doubled["a"][1][1]) is Point


def test_only_parsers_can_be_registered():
    with pytest.raises(poptorch.Error, match="arg_parser must inherit from ICustomArgParser"):
        poptorch.registerCustomArgParser(Point, object())


def test_allclose_compares_structures():
    one, two = torch.ones(2), torch.zeros(2)
    assert poptorch.testing.allclose((one, [two]), (one.clone(), [two.clone()]))
    assert not poptorch.testing.allclose((one, [two]), (one, (two,)))
    assert not poptorch.testing.allclose([one], [one, one])
    assert not poptorch.testing.allclose(one, two)


def test_trace_points_cost_nothing():
    channel = poptorch.profiling.Channel("mine")
    subject = [1]
    assert channel.instrument(subject, "append", "pop") is subject
    with channel.tracepoint("here"):
        pass
    with pytest.raises(AttributeError, match="no method 'fly'"):
        channel.instrument(subject, "fly")
