"""The command poprun, run as a user runs it, with programs that need no framework."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from openipu import hardware

POPRUN = [sys.executable, "-m", "openipu.cli.poprun"]
SHOW = "import os; print(*(os.environ[n] for n in ('POPDIST_REPLICA_INDEX_OFFSET', 'OMPI_COMM_WORLD_RANK', 'A')))"


def poprun(*words, **variables):
    environment = {**os.environ, **variables}
    return subprocess.run([*POPRUN, *words], env=environment, capture_output=True, text=True, timeout=90, check=False)


def test_any_program_runs_in_every_instance_with_its_own_place_and_tag():
    words = (
        "--num-instance",
        "2",
        "--num-replicas=4",
        "--mpi-local-args",
        "-x A=1",
        "--instance-mpi-local-args",
        "1:-x A=2",
    )
    done = poprun(*words, sys.executable, "-c", SHOW, "--num-replicas", "9")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[1,0]<stdout>:0 0 1", "[1,1]<stdout>:2 1 2"]


def test_streams_stay_apart_and_lines_whole_and_others_can_be_hidden():
    program = "import sys; print('out'); print('no end', end='', file=sys.stderr)"
    done = poprun(
        "--num-instances=2", "--num-replicas=2", "--only-output-from-instance=1", sys.executable, "-c", program
    )
    assert (done.stdout, done.stderr) == ("[1,1]<stdout>:out\n", "[1,1]<stderr>:no end\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--num-instances", "3", "--num-replicas", "4"), "4 replicas, 3 instances"),
        (("--num-instances", "2", "--num-replicas", "32", "--ipus-per-replica", "4"), "2 instances of 64 IPUs each"),
        (("--host", "a", "--hostfile", "b"), "exclude each other"),
        (("--host", "no-such-host.invalid",), "The host no-such-host.invalid cannot be reached"),
        (("--num-instances", "2", "--num-replicas", "2", "--only-output-from-instance", "2"), "must be below 2"),
        (("--print-topology", "maybe-a-program"), "cannot be started"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_starts(words, said, tmp_path):
    program = ("touch", str(tmp_path / "started")) if "maybe-a-program" not in words else ()
    done = poprun(*words, *program, OPENIPU_SYSTEM="bow-pod16")
    assert done.returncode == 1 and said in done.stderr, done.stderr
    assert not (tmp_path / "started").exists()


def test_options_of_the_hardware_are_accepted_and_said_to_have_no_effect():
    words = (
        "--vipu-partition=p",
        "--update-partition",
        "yes",
        "--num-ilds=1",
        "--mpi-global-args=--tag-output --bind-to none",
    )
    done = poprun(*words, "echo", "fine")
    assert done.stdout == "[1,0]<stdout>:fine\n"
    assert done.stderr == (
        "poprun: No effect here: --num-ilds, --vipu-partition, --update-partition, --tag-output (of mpirun), --bind-to "
        "(of mpirun).\n"
    )


def test_a_network_must_be_one_and_matters_only_to_other_hosts():
    done = poprun("--host-subnet", "nowhere", "echo", "started")
    assert done.returncode == 2 and "such as 10.1.0.0/16. Received: 'nowhere'" in done.stderr and not done.stdout
    done = poprun("--host-subnet", "10.1.0.0/16", "echo", "started")
    assert "No effect here: --host-subnet (there is no other host)" in done.stderr
    assert done.stdout == "[1,0]<stdout>:started\n"


def test_options_go_to_files_and_come_from_them_and_the_command_line_wins(tmp_path):
    path = str(tmp_path / "options.json")
    assert poprun("--num-instances=2", "--num-replicas=2", "--export-config", path).returncode == 0
    assert json.loads((tmp_path / "options.json").read_text()) == {
        "--num-instances": 2,
        "--num-replicas": 2,
        "--ipus-per-replica": 1,
    }
    done = poprun("--import-config", path, "--num-replicas=4", sys.executable, "-c", SHOW, A="x")
    assert sorted(done.stdout.splitlines()) == ["[1,0]<stdout>:0 0 x", "[1,1]<stdout>:2 1 x"]
    assert "--overwrite-config=yes" in poprun("--export-config", path).stderr


def test_offline_mode_needs_no_ipus_and_holds_none():
    program = "from openipu import hardware; hardware.acquire(4); print(len(hardware.attached_ipus()))"
    words = ("--num-instances=4", "--num-replicas=16", "--offline-mode=yes", sys.executable, "-c", program)
    done = poprun(*words, OPENIPU_SYSTEM="1xbow")
    assert sorted(done.stdout.splitlines()) == [f"[1,{i}]<stdout>:0" for i in range(4)], done.stderr


def test_versions_are_told():
    assert poprun("--version").stdout.startswith("poprun ")
    assert "jaxlib" in json.loads(poprun("--version", "--version-format=full-json").stdout)


DIES = """
import os, sys, time, signal, subprocess
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])  # a process of its own
from openipu import hardware
hardware.acquire(1)
print("ready", os.getpid(), flush=True)
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    time.sleep(0.3)
    print("the reason", file=sys.stderr, flush=True)
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(int(sys.argv[1]))
if sys.argv[1] == "kill":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("how", "code", "said"), [("7", 7, "exited with code 7"), ("kill", 137, "by signal 9 (SIGKILL)")]
)
def test_when_an_instance_dies_all_end_and_it_is_said_which_and_how(how, code, said):
    begun = time.monotonic()
    words = ("--num-instances=3", "--num-replicas=3", "--only-output-from-instance=0")
    done = poprun(*words, sys.executable, "-c", DIES, how)
    # Those that do not listen to SIGTERM are ended too.
    assert time.monotonic() - begun < 20
    assert done.returncode == code
    assert "Instance 1 (process" in done.stderr and said in done.stderr and "    the reason" in done.stderr
    assert_nothing_is_left()


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_poprun_ends_all_instances(sign):
    words = (
        "--num-instances=2",
        "--num-replicas=2",
        sys.executable,
        "-c",
        DIES.replace("time.sleep(0.3)", "time.sleep(60)"),
    )
    process = subprocess.Popen([*POPRUN, *words, "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    numbers = [int(line.split()[-1]) for line in lines]
    # The pod's registry, which gc-monitor shows, knows every instance.
    assert {holding.pid for holding in hardware.holders()} == set(numbers)
    process.send_signal(sign)
    process.communicate(timeout=20)
    assert process.returncode == (-sign if sign == signal.SIGKILL else 128 + sign)
    until = time.monotonic() + 20
    while time.monotonic() < until and any(psutil.pid_exists(number) for number in numbers):
        time.sleep(0.1)
    assert not any(psutil.pid_exists(number) for number in numbers)
    assert_nothing_is_left()


def test_in_the_background_interrupts_are_heard_and_hangups_are_not_where_nohup_says_so():
    # As `nohup poprun … &` of a script starts it.
    before = {sign: signal.signal(sign, signal.SIG_IGN) for sign in (signal.SIGINT, signal.SIGHUP)}
    try:
        words = (*POPRUN, sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(60)")
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
    assert process.stdout is not None and process.stdout.readline() == "[1,0]<stdout>:ready\n"
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130 and "Interrupted: ending all instances." in errors
    assert_nothing_is_left()


def assert_nothing_is_left():
    until = time.monotonic() + 20
    while (hardware.attached_ipus() or agents()) and time.monotonic() < until:
        time.sleep(0.1)
    assert not hardware.attached_ipus() and not agents()


def agents():
    """Agents of this test's pod."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            if "openipu.launch.agent" in (process.info["cmdline"] or []):
                found.append(process.environ().get("OPENIPU_RUNTIME_DIR") == os.environ["OPENIPU_RUNTIME_DIR"])
    return any(found)


def test_topology_is_drawn_when_asked_or_with_vv():
    assert "poprun topology" in poprun("--print-topology=on", "true").stdout
    assert "poprun topology" in poprun("--print-topology", "echo").stdout
    done = poprun("-vv", "true")
    assert "poprun topology" in done.stdout and "POPRUN [D]" in done.stderr
    done = poprun("-v", "true")
    assert "poprun topology" not in done.stdout and "POPRUN [I]" in done.stderr and "POPRUN [D]" not in done.stderr
