"""Virtual systems: their names, the numbering of devices, and who holds which IPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openipu import hardware
from openipu.errors import OutOfIpusError
from openipu.hardware import BOW, MK1, MK2, System, parse_system


@pytest.fixture(autouse=True)
def nothing_attached():
    yield
    for device in hardware.attached():
        hardware.detach(device)


def test_the_default_system_is_a_bow_pod16(monkeypatch):
    monkeypatch.delenv("OPENIPU_SYSTEM", raising=False)
    assert hardware.current_system() == System("bow-pod16", BOW, 16)


@pytest.mark.parametrize(
    "name, target, count",
    [("mk2-pod4", MK2, 4), ("BOW-POD64", BOW, 64), ("mk1-pod16", MK1, 16), ("2xbow", BOW, 2), (" 6xmk1 ", MK1, 6)],
)
def test_system_names(monkeypatch, name, target, count):
    monkeypatch.setenv("OPENIPU_SYSTEM", name)
    system = hardware.current_system()
    assert (system.target, system.count) == (target, count)


@pytest.mark.parametrize("name", ["bow", "bow-pod3", "0xbow", "2xgpu", "pod16", "-1xbow", "bow-pod16x"])
def test_a_bad_name_lists_the_valid_ones(name):
    with pytest.raises(ValueError) as error:
        parse_system(name)
    for valid in ("bow-pod16", "mk2-pod64", "mk1-pod4", "2xbow", repr(name)):
        assert valid in str(error.value)


def test_device_ids_of_sixteen_ipus():
    system = System("test", BOW, 16)
    sizes = {device.id: device.count for device in system.devices()}
    assert sizes == {i: 1 if i < 16 else 2 if i < 24 else 4 if i < 28 else 8 if i < 30 else 16 for i in range(31)}
    assert system.by_id(5).ipus == (5,)
    assert system.by_id(17).ipus == (2, 3)
    assert system.by_id(29).ipus == tuple(range(8, 16))


@given(st.integers(0, 7))
def test_device_numbering_of_any_power_of_two(exponent):
    count = 2**exponent
    devices = list(System("test", MK2, count).devices())
    assert [device.id for device in devices] == list(range(2 * count - 1))
    assert [device.count for device in devices] == sorted(device.count for device in devices)
    for size in (2**power for power in range(exponent + 1)):
        together = [ipu for device in devices if device.count == size for ipu in device.ipus]
        assert together == list(range(count))


@given(st.data())
def test_groups_that_add_up_to_the_system_always_fit(data):
    system = System("test", BOW, 16)
    taken: set[int] = set()
    while len(taken) < system.count:
        left = system.count - len(taken)
        count = data.draw(st.sampled_from([size for size in (1, 2, 4, 8, 16) if size <= left]))
        device = system.device(count, taken)
        assert device.count == count and taken.isdisjoint(device.ipus)
        taken.update(device.ipus)


@given(st.integers(-3, 200).filter(lambda n: n < 1 or n & (n - 1)))
def test_only_powers_of_two_can_be_asked_for(count):
    with pytest.raises(ValueError) as error:
        System("test", BOW, 64).device(count, purpose="X")
    expected = f"Unsupported number of IPUs requested - could not find an IPU device with {count} IPUs for X"
    assert str(error.value).startswith(expected)


def test_more_ipus_than_there_are():
    with pytest.raises(OutOfIpusError, match=r"^32 IPUs were requested, .* bow-pod16 has 16\. .*OPENIPU_SYSTEM=32xbow"):
        parse_system("bow-pod16").device(32)
    with pytest.raises(OutOfIpusError, match=r"no IPU device with id 31.* 0 to 30"):
        parse_system("bow-pod16").by_id(31)
    with pytest.raises(OutOfIpusError, match=r"id -1"):
        parse_system("bow-pod16").by_id(-1)


def test_more_ipus_than_are_free():
    with pytest.raises(OutOfIpusError, match=r"1 of the 4 IPUs .* 3 are free"):
        parse_system("4xbow").device(4, taken={2})


def test_attached_ipus_are_held_until_detached():
    system = parse_system("4xbow")
    pair, inside, other = system.by_id(4), system.by_id(1), system.by_id(2)
    hardware.attach(pair)
    with pytest.raises(OutOfIpusError, match=r"device 1 .* already held are the IPUs 1"):
        hardware.attach(inside)
    hardware.attach(other)
    assert hardware.attached() == (pair, other)
    assert hardware.attached_ipus() == {0, 1, 2}
    hardware.detach(pair)
    hardware.detach(pair)
    hardware.attach(inside)
    assert hardware.attached() == (other, inside)
