"""Applying an IPUConfig: checks between options, devices, attachment and resets."""

import logging

import pytest
import tensorflow as tf

from openipu import hardware
from openipu.errors import OutOfIpusError
from openipu.tensorflow.configuration import system
from openipu.tensorflow.configuration.enums import DeviceConnectionType
from openipu.tensorflow.configuration.system import IPUConfig


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch):
    monkeypatch.delenv("OPENIPU_SYSTEM", raising=False)
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    system.reset_ipu_configuration()
    yield
    system.reset_ipu_configuration()
    assert hardware.attached() == ()


@pytest.fixture
def ipu_model(monkeypatch):
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")


def selecting(**options):
    cfg = IPUConfig()
    for name, value in options.items():
        setattr(cfg, name, value)
    return cfg


def configured_ipus():
    return [device.ipus for device in system.configured_devices()]


@pytest.mark.parametrize(
    "options, ipus",
    [
        ({"auto_select_ipus": 4}, [(0, 1, 2, 3)]),
        ({"auto_select_ipus": [4]}, [(0, 1, 2, 3)]),
        ({"auto_select_ipus": (4,)}, [(0, 1, 2, 3)]),
        ({"auto_select_ipus": [1, 2]}, [(0,), (2, 3)]),
        ({"auto_select_ipus": [2, 1, 8]}, [(0, 1), (2,), tuple(range(8, 16))]),
        ({"select_ipus": 5}, [(5,)]),
        ({"select_ipus": [17]}, [(2, 3)]),
        ({"select_ipus": [0, 1]}, [(0,), (1,)]),
        ({}, [(0,)]),
    ],
)
def test_selection(options, ipus):
    selecting(**options).configure_ipu_system()
    assert configured_ipus() == ipus
    held = [device.ipus for device in hardware.attached()]
    assert held == (ipus if options else [])


def test_a_single_number_becomes_a_list_in_the_users_config():
    cfg = selecting(auto_select_ipus=2)
    cfg.configure_ipu_system()
    assert cfg.auto_select_ipus == [2]


def test_attaching_is_logged(caplog):
    caplog.set_level(logging.INFO)
    selecting(auto_select_ipus=[1, 2]).configure_ipu_system()
    assert "TensorFlow device /device:IPU:1 attached to 2 IPU(s) with Poplar device ID(s): 17" in caplog.text


def test_options_that_would_change_results_but_do_not_are_named_once(caplog):
    cfg = selecting(auto_select_ipus=1)
    cfg.floating_point_behaviour.inv = True  # works
    cfg.norms.experimental.distributed_batch_norm_replica_group_size = 2
    cfg.configure_ipu_system()
    cfg.configure_ipu_system()
    (warning,) = (r.message for r in caplog.records if r.levelno == logging.WARNING)
    assert "no effect: norms.experimental.distributed_batch_norm_replica_group_size (" in warning
    assert "floating_point_behaviour" not in warning


def test_without_a_config_one_ipu_is_configured_on_first_use(caplog):
    caplog.set_level(logging.INFO)
    assert configured_ipus() == [(0,)]
    assert "No IPU device was configured" in caplog.text
    assert hardware.attached() == ()
    assert system.attach_device(0).ipus == (0,)
    assert hardware.attached_ipus() == {0}


def test_a_number_that_is_no_power_of_two():
    message = (
        "^Unsupported number of IPUs requested - could not find an IPU device with 3 IPUs "
        "for the TensorFlow virtual device /device:IPU:1"
    )
    with pytest.raises(ValueError, match=message):
        selecting(auto_select_ipus=[1, 3]).configure_ipu_system()
    assert system.active_config() is None


@pytest.mark.parametrize("numbers", [32, [16, 1], [8, 8, 1]])
def test_more_ipus_than_the_system_has(numbers):
    with pytest.raises(OutOfIpusError, match=r"16"):
        selecting(auto_select_ipus=numbers).configure_ipu_system()
    assert hardware.attached() == ()


def test_the_system_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("OPENIPU_SYSTEM", "2xmk1")
    selecting(auto_select_ipus=2).configure_ipu_system()
    assert system.configured_devices()[0].target is hardware.MK1
    with pytest.raises(OutOfIpusError, match=r"4 IPUs were requested .* 2xmk1 has 2"):
        selecting(auto_select_ipus=4).configure_ipu_system()


def test_overlapping_ids_cannot_be_attached_together():
    with pytest.raises(OutOfIpusError, match=r"already held are the IPUs 0"):
        selecting(select_ipus=[0, 16]).configure_ipu_system()
    assert hardware.attached() == ()
    assert system.active_config() is None


def broken(change, error, message, flags=""):
    return pytest.param(change, error, message, flags, id=message[:60])


def connection(kind, version=""):
    def change(cfg):
        cfg.device_connection.type = kind
        cfg.device_connection.version = version

    return change


def assign(**options):
    def change(cfg):
        for path, value in options.items():
            part = cfg
            *categories, last = path.split("__")
            for category in categories:
                part = getattr(part, category)
            setattr(part, last, value)

    return change


GROUP = "norms__experimental__distributed_batch_norm_replica_group_size"
PROCESSES = "experimental__multi_replica_distribution__process_count"
INDEX = "experimental__multi_replica_distribution__process_index"
VERSION_NEEDED = (
    "device_connection.version must be set when device_connection.type is "
    "DeviceConnectionType.NEVER or DeviceConnectionType.PRE_COMPILE"
)
INDEX_RANGE = (
    "experimental.multi_replica_distribution.process_index must be in the range "
    "[0, experimental.multi_replica_distribution.process_count)."
)


@pytest.mark.parametrize(
    "change, error, message, flags",
    [
        broken(
            assign(auto_select_ipus=1, select_ipus=0),
            Exception,
            "Only one of `auto_select_ipus` and `select_ipus` can be set.",
        ),
        broken(assign(select_ipus=[1, 1]), ValueError, "All MultiIPU indices in `select_ipus` must be unique."),
        broken(
            assign(select_ipus=[1]),
            Exception,
            "When using the IPUModel, the devices to attach to can only be specified with `auto_select_ipus`.",
            "--use_ipu_model",
        ),
        broken(
            assign(io_tiles__num_io_tiles=32, **{GROUP: 2}),
            ValueError,
            "norms.experimental.distributed_batch_norm_replica_group_size is not supported with I/O tiles.",
        ),
        broken(
            assign(io_tiles__place_ops_on_io_tiles=True),
            ValueError,
            "Cannot place ops on I/O tiles when io_tiles.num_io_tiles == 0",
        ),
        broken(connection(DeviceConnectionType.NEVER), ValueError, VERSION_NEEDED),
        broken(connection(DeviceConnectionType.PRE_COMPILE), ValueError, VERSION_NEEDED),
        broken(
            assign(ipu_model__version=""),
            ValueError,
            "ipu_model.version must be set when using the IPUModel.",
            "--use_ipu_model",
        ),
        broken(
            assign(**{GROUP: 0}),
            ValueError,
            "norms.experimental.distributed_batch_norm_replica_group_size must be at least 1.",
        ),
        broken(assign(**{PROCESSES: 2, INDEX: 2}), ValueError, INDEX_RANGE),
        broken(assign(**{PROCESSES: 2, INDEX: -1}), ValueError, INDEX_RANGE),
        broken(
            assign(**{PROCESSES: 2}),
            Exception,
            "Multi-replica distribution is not supported on the IPU model.",
            "--use_ipu_model",
        ),
    ],
)
def test_rules_between_options(monkeypatch, change, error, message, flags):
    monkeypatch.setenv("TF_POPLAR_FLAGS", flags)
    cfg = IPUConfig()
    change(cfg)
    with pytest.raises(error) as raised:
        cfg.configure_ipu_system()
    assert (type(raised.value), str(raised.value)) == (error, message)
    assert system.active_config() is None


@pytest.mark.parametrize(
    "change, message",
    [
        (assign(io_tiles__num_io_tiles=193), "between 0 and 192.*193"),
        (assign(io_tiles__num_io_tiles=-1), "between 0 and 192"),
        (connection(DeviceConnectionType.NEVER, "ipu7"), "ipu1, ipu2, ipu21.*'ipu7'"),
    ],
)
def test_values_out_of_range(change, message):
    cfg = IPUConfig()
    change(cfg)
    with pytest.raises(ValueError, match=message):
        cfg.configure_ipu_system()


def test_option_dictionaries_must_hold_text():
    cfg = IPUConfig()
    cfg.convolutions.poplar_options["availableMemoryProportion"] = 0.3
    with pytest.raises(TypeError, match=r"convolutions.poplar_options\['availableMemoryProportion'\]=0.3"):
        cfg.configure_ipu_system()


def test_unknown_flags_are_refused(monkeypatch):
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--fast")
    with pytest.raises(ValueError, match=r"--fast"):
        IPUConfig().configure_ipu_system()


def test_the_ipu_model_has_the_version_and_tiles_of_the_config(ipu_model):
    cfg = selecting(auto_select_ipus=2)
    cfg.ipu_model.version = "ipu1"
    cfg.ipu_model.tiles_per_ipu = 8
    cfg.configure_ipu_system()
    target = system.configured_devices()[0].target
    assert (target.architecture, target.tiles) == ("ipu1", 8)


@pytest.mark.parametrize("wrong", [None, {}, "config", DeviceConnectionType.ALWAYS])
def test_only_configs_can_be_applied(wrong):
    with pytest.raises(TypeError, match=r"^`config` must be an IpuOptions instance.$"):
        system.configure_ipu_system(wrong)


@pytest.fixture
def resets():
    seen = []
    system.on_reset(callback := lambda: seen.append(hardware.attached_ipus()))
    yield seen
    system._reset_callbacks.remove(callback)


def test_an_identical_config_changes_nothing(caplog, resets):
    selecting(auto_select_ipus=[4]).configure_ipu_system()
    system.configure_ipu_system(selecting(auto_select_ipus=(4,)), reset_configuration=False)
    assert resets == [] and not caplog.records


def test_a_different_config_replaces_the_active_one(caplog, resets):
    cfg = selecting(auto_select_ipus=16)
    cfg.configure_ipu_system()
    cfg.auto_select_ipus = 8
    assert system.active_config().auto_select_ipus == [16]
    cfg.configure_ipu_system()
    assert "Resetting existing IPU configuration before applying new configuration" in caplog.text
    assert resets == [set(range(16))]
    assert hardware.attached_ipus() == set(range(8))


def test_a_different_config_is_refused_without_reset(resets):
    selecting(auto_select_ipus=2).configure_ipu_system()
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"reset_ipu_configuration"):
        system.configure_ipu_system(selecting(auto_select_ipus=4), reset_configuration=False)
    assert resets == [] and configured_ipus() == [(0, 1)]


def test_a_config_that_cannot_be_had_leaves_the_active_one(resets):
    selecting(auto_select_ipus=2).configure_ipu_system()
    with pytest.raises(OutOfIpusError):
        selecting(auto_select_ipus=32).configure_ipu_system()
    assert resets == [] and configured_ipus() == [(0, 1)]


def test_reset_releases_and_forgets(resets):
    system.reset_ipu_configuration()
    assert resets == []
    selecting(auto_select_ipus=2).configure_ipu_system()
    system.reset_ipu_configuration()
    assert resets == [{0, 1}] and hardware.attached() == ()
    with pytest.raises(RuntimeError, match=r"^No IPU devices configured.$"):
        system.get_ipu_config()


def test_get_ipu_config_has_one_entry_per_device():
    selecting(auto_select_ipus=[1, 2]).configure_ipu_system()
    options = system.get_ipu_config()
    assert [(option.ordinal, option.device.ipus) for option in options] == [(0, (0,)), (1, (2, 3))]
    options[0].config.allow_recompute = True
    assert not system.active_config().allow_recompute
    with pytest.raises(AssertionError, match=r"No session is required for eager execution."):
        system.get_ipu_config(session=object())
    system.configure_ipu_system(options[1], reset_configuration=False)


def test_ipus_held_by_others_are_passed_over():
    foreign = hardware.current_system().by_id(0)
    hardware.attach(foreign)
    try:
        selecting(auto_select_ipus=[1, 2]).configure_ipu_system()
        assert configured_ipus() == [(1,), (2, 3)]
        with pytest.raises(OutOfIpusError, match=r"1 of the 16 IPUs"):
            selecting(auto_select_ipus=16).configure_ipu_system()
    finally:
        hardware.detach(foreign)


def test_on_demand_attaches_at_the_first_execution():
    cfg = selecting(auto_select_ipus=[2, 2])
    connection(DeviceConnectionType.ON_DEMAND)(cfg)
    cfg.configure_ipu_system()
    assert system.device_connection_type(1) is DeviceConnectionType.ON_DEMAND
    assert hardware.attached() == ()
    foreign = hardware.current_system().by_id(0)
    hardware.attach(foreign)
    try:
        assert system.attach_device(0).ipus == (4, 5)
        assert system.attach_device(0).ipus == (4, 5)
        assert system.attach_device(1).ipus == (2, 3)
    finally:
        hardware.detach(foreign)


def test_a_flag_forces_on_demand(monkeypatch):
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_on_demand")
    selecting(auto_select_ipus=1).configure_ipu_system()
    assert system.device_connection_type(0) is DeviceConnectionType.ON_DEMAND
    assert hardware.attached() == ()


@pytest.mark.parametrize("kind", [DeviceConnectionType.NEVER, DeviceConnectionType.PRE_COMPILE])
def test_compile_only_devices_are_never_attached(kind):
    cfg = selecting(auto_select_ipus=64)
    connection(kind, "ipu1")(cfg)
    cfg.configure_ipu_system()
    assert system.device_connection_type(0) is kind
    device = system.configured_devices()[0]
    assert (device.count, device.target) == (64, hardware.MK1)
    with pytest.raises(tf.errors.FailedPreconditionError, match=f"{kind}"):
        system.attach_device(0)
    assert hardware.attached() == ()


def test_a_device_that_is_not_configured():
    selecting(auto_select_ipus=1).configure_ipu_system()
    with pytest.raises(ValueError, match=r"no /device:IPU:1: 1 TensorFlow IPU device"):
        system.device_connection_type(1)
