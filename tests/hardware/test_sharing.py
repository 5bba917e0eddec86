"""Programs in several processes share a virtual pod as they would share a real one."""

import os
import shlex
import subprocess
import sys

import psutil
import pytest

from openipu import hardware
from openipu.errors import OutOfIpusError
from openipu.hardware import Wait, waiting


def test_programs_see_each_other_and_get_other_ipus(programs):
    one, other = programs(2)
    assert one.tell("acquire 2") == [0, 1]
    assert other.tell("look") == [0, 1]
    assert other.tell("acquire 4") == [4, 5, 6, 7]
    assert hardware.attached_ipus() == {0, 1, 4, 5, 6, 7}
    assert hardware.attached() == ()
    assert [held.pid for held in hardware.holders()] == [one.pid, other.pid]
    for held in hardware.holders():
        process = psutil.Process(held.pid)
        assert (held.user, shlex.split(held.command)) == (process.username(), process.cmdline())


def test_a_busy_device_is_refused_with_the_name_of_its_holder(programs):
    (one,) = programs()
    one.tell("attach 17")
    device = hardware.current_system().by_id(3)
    with pytest.raises(OutOfIpusError, match=rf"device 3 .*IPUs 3\..* 2-3 by process {one.pid} \(.*python"):
        hardware.attach(device)
    assert hardware.attached() == ()


def test_detached_ipus_are_free_for_others(programs):
    one, other = programs(2)
    assert one.tell("acquire 16") == list(range(16))
    assert "16 of the 16 IPUs" in other.tell("acquire 1")
    one.tell("detach")
    assert other.tell("acquire 16") == list(range(16))


def test_a_killed_program_frees_its_ipus_at_once(programs):
    one, other = programs(2)
    one.tell("acquire 16")
    one.kill()
    assert hardware.attached_ipus() == frozenset()
    assert other.tell("acquire 16") == list(range(16))


def test_a_program_that_ends_leaves_nothing_behind(programs):
    (one,) = programs()
    one.tell("acquire 8")
    one.process.communicate()
    record = os.path.join(os.environ["OPENIPU_RUNTIME_DIR"], "bow-pod16.json")
    with open(record) as file:
        assert '"holdings": []' in file.read()


def test_eight_programs_race_for_two_ipus_each_and_a_ninth_is_refused(programs):
    racing = programs(8)
    for program in racing:
        program.begin("acquire 2")
    got = [tuple(program.answer()) for program in racing]
    assert sorted(got) == [(first, first + 1) for first in range(0, 16, 2)]
    with pytest.raises(OutOfIpusError) as refusal:
        hardware.acquire(2)
    for program in racing:
        assert f"process {program.pid} " in str(refusal.value)


def test_a_third_program_waits_and_goes_on_when_one_detaches(programs):
    one, other, third = programs(3)
    one.tell("acquire 8")
    other.tell("acquire 8")
    third.begin("wait 8")
    assert hardware.attached_ipus() == set(range(16))
    one.tell("detach")
    assert third.answer() == list(range(8))


def test_a_long_wait_tells_what_it_waits_for(programs, monkeypatch, capsys):
    (one,) = programs()
    one.tell("acquire 16")
    monkeypatch.setattr(waiting, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "sleep", lambda seconds: one.kill())
    assert hardware.acquire(1, Wait(poll=0.01)).ipus == (0,)
    said = capsys.readouterr().err
    assert "Waiting until they are free" in said and f"process {one.pid} " in said and "attached." in said


def test_a_wait_ends_when_its_time_is_over(programs):
    (one,) = programs()
    one.tell("acquire 16")
    with pytest.raises(OutOfIpusError, match=rf"^Waited 0\.\d s for IPUs in vain\. .* process {one.pid} "):
        hardware.acquire(1, Wait(poll=0.01, timeout=0.03))


def test_nobody_waits_for_what_can_never_be(pod):
    with pytest.raises(OutOfIpusError, match=r"^32 IPUs were requested, .* has 16\. "):
        hardware.acquire(32, Wait(poll=0.01))
    hardware.acquire(8)
    with pytest.raises(OutOfIpusError, match=r"0-7 by this process\.$"):
        hardware.acquire(16, Wait(poll=0.01))


def test_other_systems_are_other_pods(programs):
    (one,) = programs(OPENIPU_SYSTEM="2xbow")
    assert one.tell("acquire 2") == [0, 1]
    assert hardware.acquire(16).ipus == tuple(range(16))


FORKING = """
import os, sys
from openipu import hardware

mine = hardware.acquire(2)
child = os.fork()
if not child:
    assert hardware.attached() == ()
    hardware.detach(mine)
    assert hardware.attached_ipus() == {0, 1}
    assert hardware.acquire(2).ipus == (2, 3)
    sys.exit()  # with the functions that run at the end of a program
_, status = os.waitpid(child, 0)
assert status == 0, status
assert hardware.attached() == (mine,)
assert [(held.pid, held.ipus) for held in hardware.holders()] == [(os.getpid(), (0, 1))]
child = os.fork()
if not child:
    hardware.acquire(2)
    os._exit(0)  # as the workers of loaders end
os.waitpid(child, 0)
assert hardware.attached_ipus() == {0, 1}
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forked_children_neither_hold_nor_free_what_their_parent_holds(pod):
    subprocess.run([sys.executable, "-c", FORKING], check=True)
