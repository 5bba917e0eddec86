"""PopTorch programs share the virtual pod with other programs, and `gc-monitor` shows them."""

import json
import os
import subprocess
import sys

import pytest
import torch

import poptorch
from openipu import hardware
from openipu.hardware import waiting
from tests.holder import Holder

X = torch.ones(2, 3)


@pytest.fixture
def other(monkeypatch, tmp_path):
    """Another program, on the same pod of four IPUs."""
    monkeypatch.setenv("OPENIPU_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("OPENIPU_SYSTEM", "mk2-pod4")
    holder = Holder().started()
    yield holder
    holder.end()


@pytest.fixture
def model(other):
    executors = []

    def make(options=None, replicas=2):
        options = (options or poptorch.Options()).replicationFactor(replicas)
        executors.append(poptorch.inferenceModel(torch.nn.Linear(3, 2), options))
        return executors[-1]

    yield make
    for executor in executors:
        executor.destroy()


def test_gc_monitor_in_another_process_shows_a_training_program(other):
    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, x):
            return poptorch.identity_loss(self.layer(x), "mean")

    module = Loss()
    other.tell("acquire 1")
    executor = poptorch.trainingModel(module, optimizer=poptorch.optim.SGD(module.parameters(), lr=0.1))
    executor(X)

    def monitor():
        command = [sys.executable, "-m", "openipu.cli.gc_monitor", "--json", "--no-card-info"]
        (partition,) = json.loads(subprocess.check_output(command))["partitions"]
        return [(process["pid"], process["ipus"]) for process in partition["processes"]]

    assert monitor() == [(other.pid, [0]), (os.getpid(), [1])]
    executor.detachFromDevice()
    assert monitor() == [(other.pid, [0])]
    executor(X)
    assert hardware.attached_ipus() == {0, 1}
    executor.destroy()


def test_what_does_not_fit_is_refused_with_the_name_of_the_holder(other, model):
    other.tell("acquire 4")
    with pytest.raises(poptorch.Error, match=rf"Failed to acquire 2 IPU\(s\)\. .* process {other.pid} \("):
        model()(X)
    other.kill()
    model()(X)
    assert hardware.attached_ipus() == {0, 1}


def test_a_variable_makes_it_wait(other, model, monkeypatch, capsys):
    other.tell("acquire 4")
    monkeypatch.setenv("POPTORCH_WAIT_FOR_IPU", "1")
    monkeypatch.setattr(waiting, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "sleep", lambda seconds: other.kill())
    model()(X)
    assert hardware.attached_ipus() == {0, 1}
    assert "Waiting until they are free; Ctrl-C stops." in capsys.readouterr().err


def test_an_id_chooses_the_device(other, model):
    other.tell("acquire 1")
    model(poptorch.Options().useIpuId(5))(X)
    assert hardware.attached_ipus() == {0, 2, 3}
    with pytest.raises(poptorch.Error, match=rf"device 4 .* 0 by process {other.pid} \("):
        model(poptorch.Options().useIpuId(4))(X)
    with pytest.raises(poptorch.Error, match=r"Failed to acquire 2 IPU\(s\)\. .*id 1 of useIpuId has 1\."):
        model(poptorch.Options().useIpuId(1))(X)


def test_compiling_offline_and_the_software_model_hold_nothing(other, model):
    other.tell("acquire 4")
    model(poptorch.Options().useIpuModel(True))(X)
    model(poptorch.Options().connectionType(poptorch.ConnectionType.Never)).compile(X)
    assert [held.pid for held in hardware.holders()] == [other.pid]
