"""Instances on two hosts, which are two addresses of this machine, reached through a real sshd."""

import getpass
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time

import pytest

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin")
TOP = pathlib.Path(__file__).parents[2]
HOSTS = ("127.0.0.2", "127.0.0.3")

pytestmark = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh-keygen") is None,
    reason="there is no sshd on this machine: install Debian's openssh-server to have the ssh launcher tested",
)


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """A server for both hosts, and the arguments that ssh needs for it."""
    assert SSHD is not None
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    with socket.socket() as found:
        found.bind((HOSTS[0], 0))
        port = found.getsockname()[1]
    (folder / "config").write_text(
        "".join(f"ListenAddress {host}:{port}\n" for host in HOSTS)
        + f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nPidFile none\nStrictModes no\nUsePAM no\n"
        + f"PermitRootLogin prohibit-password\nPasswordAuthentication no\nAllowUsers {getpass.getuser()}\n"
    )
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # The server insists, and only root can make it.
    log = open(folder / "log", "wb")  # noqa: SIM115
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "config")], stderr=log)
    until = time.monotonic() + 10
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((HOSTS[1], port)) == 0:
                break
        if server.poll() is not None or time.monotonic() > until:
            pytest.skip(f"sshd does not run here: {(folder / 'log').read_text()[-500:]}")
        time.sleep(0.1)
    yield f"-p {port} -i {folder}/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    server.terminate()
    server.wait()
    log.close()


def poprun(shell, *words):
    command = [sys.executable, "-m", "openipu.cli.poprun", "--mpi-global-args", f"--mca plm_rsh_args '{shell}'", *words]
    variables = {**os.environ, "PYTHONPATH": f"{TOP / 'src'}:{TOP}", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False, cwd=TOP)


def test_two_hosts_train_one_program(shell):
    words = ("--host", ",".join(HOSTS), "--num-instances=2", "--num-replicas=4", "--print-topology=yes")
    done = poprun(shell, *words, sys.executable, "tests/instances/core_program.py", 'it\'s "quoted" $HOME')
    assert done.returncode == 0, done.stderr
    assert re.search(r"\| hosts +\| +127.0.0.2 +\| +127.0.0.3 +\|", done.stdout)
    for index in range(2):
        assert f'[1,{index}]<stdout>:trained on 1 devices of each of 2 instances it\'s "quoted" $HOME' in done.stdout


def test_an_instance_that_dies_on_another_host_ends_all_and_is_named(shell):
    program = "import os, sys, time; os.environ['OMPI_COMM_WORLD_RANK'] == '1' and sys.exit('gone'); time.sleep(60)"
    words = ("--host", f"{HOSTS[0]}:1,{HOSTS[1]}:2", "--num-replicas=3", sys.executable, "-c", program)
    begun = time.monotonic()
    done = poprun(shell, *words)
    assert time.monotonic() - begun < 20
    assert done.returncode == 1 and "on 127.0.0.3) exited with code 1" in done.stderr and "    gone" in done.stderr


def test_a_host_without_a_server_is_named(shell):
    done = poprun(shell, "--host", f"{HOSTS[0]},127.0.0.4", "--num-instances=2", "--num-replicas=2", "echo", "started")
    assert done.returncode == 1 and "The host 127.0.0.4 cannot be reached" in done.stderr
    assert "started" not in done.stdout


def test_a_host_whose_connection_breaks_ends_the_launch(shell):
    program = (
        "import os, time, psutil\n"
        "if os.environ['OMPI_COMM_WORLD_RANK'] == '1':\n"
        "    parents = psutil.Process().parents()\n"
        "    next(p for p in parents if 'sshd' in p.name()).kill()\n"
        "time.sleep(60)"
    )
    words = ("--host", ",".join(HOSTS), "--num-instances=2", "--num-replicas=2", sys.executable, "-c", program)
    begun = time.monotonic()
    done = poprun(shell, *words)
    assert time.monotonic() - begun < 20
    assert done.returncode == 1 and "The connection to 127.0.0.3 is lost" in done.stderr
