"""TensorFlow programs share the virtual pod with other programs as their connection type says."""

import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from openipu import hardware
from openipu.errors import OutOfIpusError
from openipu.hardware import waiting
from openipu.tensorflow.configuration import system
from tests.holder import Holder

Connection = ipu.config.DeviceConnectionType


@pytest.fixture
def other(monkeypatch, tmp_path):
    """Another program, on the same pod of four IPUs."""
    monkeypatch.setenv("OPENIPU_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("OPENIPU_SYSTEM", "mk2-pod4")
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    ipu.config.reset_ipu_configuration()
    holder = Holder().started()
    yield holder
    ipu.config.reset_ipu_configuration()
    holder.end()


def configure(connection=Connection.ALWAYS, **options):
    config = ipu.config.IPUConfig()
    config.device_connection.type = connection
    if connection in (Connection.NEVER, Connection.PRE_COMPILE):
        config.device_connection.version = "ipu2"
    for name, value in options.items():
        setattr(config, name, value)
    config.configure_ipu_system()


def run_program():
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        result = strategy.run(tf.function(lambda x: x + 1, jit_compile=True), args=(tf.constant([1.0, 2.0]),))
    np.testing.assert_array_equal(result, [2.0, 3.0])


def test_always_takes_what_is_free_and_is_refused_what_is_not(other):
    other.tell("acquire 2")
    configure(auto_select_ipus=2)
    assert other.tell("look") == [0, 1, 2, 3]
    assert system.configured_devices()[0].ipus == (2, 3)
    with pytest.raises(OutOfIpusError, match=rf"device 4 .* 0-1 by process {other.pid} \("):
        configure(select_ipus=4)
    assert system.configured_devices()[0].ipus == (2, 3)
    ipu.config.reset_ipu_configuration()
    assert other.tell("look") == [0, 1]
    with pytest.raises(OutOfIpusError, match=rf"4 IPUs were requested .* process {other.pid} \("):
        configure(auto_select_ipus=4)


@pytest.mark.parametrize("by_flag", [False, True])
@pytest.mark.parametrize("selection", [{"auto_select_ipus": 4}, {"select_ipus": 6}])
def test_on_demand_waits_at_the_first_execution(other, monkeypatch, capsys, by_flag, selection):
    other.tell("acquire 4")
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--on_demand_device_poll_time=100" + " --use_on_demand" * by_flag)
    configure(Connection.ALWAYS if by_flag else Connection.ON_DEMAND, **selection)
    assert hardware.attached() == ()
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        other.kill()
        time.sleep(seconds)

    monkeypatch.setattr(waiting, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "sleep", sleep)
    run_program()
    assert sum(waits) <= 0.1
    assert [device.count for device in hardware.attached()] == [4]
    assert "Waiting for at most 3600 s; Ctrl-C stops. " in (said := capsys.readouterr().err)
    assert f"process {other.pid} (" in said


def test_on_demand_gives_up_after_the_time_of_the_flag(other, monkeypatch):
    other.tell("acquire 4")
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--on_demand_device_poll_time=100 --on_demand_device_timeout=50")
    configure(Connection.ON_DEMAND, auto_select_ipus=1)
    with pytest.raises(OutOfIpusError, match=r"^Waited 0\.\d s for IPUs in vain\. "):
        run_program()


@pytest.mark.parametrize("connection", [Connection.NEVER, Connection.PRE_COMPILE])
def test_programs_that_are_only_compiled_hold_nothing(other, connection):
    other.tell("acquire 4")
    configure(connection, auto_select_ipus=4)
    assert [held.pid for held in hardware.holders()] == [other.pid]


def test_the_software_model_holds_nothing(other, monkeypatch):
    other.tell("acquire 4")
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    configure(auto_select_ipus=4)
    run_program()
    assert [held.pid for held in hardware.holders()] == [other.pid]
    ipu.config.reset_ipu_configuration()
    assert other.tell("look") == [0, 1, 2, 3]
