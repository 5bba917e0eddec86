"""The record of who holds what: broken records, records of the dead, and directories that cannot be trusted."""

import json
import os
import stat

import pytest

from openipu import hardware
from openipu.hardware import RegistryError, registry
from openipu.hardware.processes import Identity, this_process


@pytest.fixture
def record(pod, tmp_path):
    hardware.detach(hardware.acquire(1))
    return tmp_path / "runtime" / "bow-pod16.json"


def holding(**changes):
    entry = {"pid": 1, "started": 0.0, "device": 0, "ipus": [0], "since": 0.0, "command": "x", "user": "x"}
    return {**entry, **changes}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"format": 1, "holdings": [{"pid": 12',
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"format": 2, "holdings": []}',
        b'{"format": 1, "holdings": 5}',
    ],
)
def test_a_broken_record_is_warned_of_and_written_anew(record, caplog, content):
    record.write_bytes(content)
    assert f"{record} does not say who holds which IPUs" in _written_anew(caplog)


@pytest.mark.parametrize(
    "content",
    [
        b'{"format": 1, "holdings": [5]}',
        *(
            json.dumps({"format": 1, "holdings": [holding(**change)]}).encode()
            for change in ({"pid": "1"}, {"ipus": [None]}, {"ipus": 3}, {"more": 1}, {"started": []})
        ),
    ],
)
def test_a_holder_that_cannot_be_is_warned_of_and_left_out(record, caplog, content):
    record.write_bytes(content)
    assert f"{record} has a holder that cannot be" in _written_anew(caplog)


def _written_anew(caplog):
    """What was said of a record that is read, and then written by whoever attaches."""
    assert hardware.holders() == ()
    said = caplog.text
    assert hardware.acquire(2).ipus == (0, 1)
    caplog.clear()
    assert [held.ipus for held in registry.read("bow-pod16")] == [(0, 1)]
    assert not caplog.records
    return said


def test_a_process_that_got_the_number_of_a_dead_one_holds_nothing(record):
    now = this_process()
    assert now.alive() and not Identity(now.pid, now.started - 60).alive()
    parent = os.getppid()
    record.write_text(json.dumps({"format": 1, "holdings": [holding(pid=parent, started=-60.0)]}))
    assert hardware.holders() == ()


def test_a_lost_record_is_no_loss_for_those_who_hold(record):
    mine = hardware.acquire(4)
    record.unlink()
    assert hardware.attached_ipus() == set(mine.ipus)
    hardware.acquire(1)
    assert len(registry.read("bow-pod16")) == 2


def test_nothing_is_made_by_looking(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENIPU_RUNTIME_DIR", str(tmp_path / "none"))
    assert hardware.holders() == () and registry.partitions() == []
    assert not (tmp_path / "none").exists()


def test_only_the_user_can_read_it(record):
    directory = record.parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    directory.chmod(0o755)
    hardware.acquire(1)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_directory_of_another_user_is_refused(pod, tmp_path, monkeypatch):
    (tmp_path / "runtime").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    for use in (hardware.holders, lambda: hardware.acquire(1)):
        with pytest.raises(RegistryError, match=r"must belong to the user .*OPENIPU_RUNTIME_DIR"):
            use()
    assert hardware.attached() == ()


def test_a_link_or_a_file_in_place_of_the_directory_is_refused(pod, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "runtime").symlink_to(tmp_path / "other")
    with pytest.raises(RegistryError, match=r"must be a directory"):
        hardware.acquire(1)
    (tmp_path / "runtime").unlink()
    (tmp_path / "runtime").write_text("")
    with pytest.raises(RegistryError, match=r"cannot be made.*OPENIPU_RUNTIME_DIR"):
        hardware.acquire(1)


def test_a_holder_collected_as_garbage_while_another_attaches(pod):
    first = hardware.acquire(1)

    def choose(busy):
        # As a deleted model does, in the middle of somebody else's change.
        hardware.detach(first)
        return (pod.by_id(1),)

    hardware.claim(choose)
    assert hardware.attached() == (pod.by_id(1),)
    assert [held.ipus for held in registry.read("bow-pod16")] == [(1,)]
