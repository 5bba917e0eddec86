"""The way to a host's agent: a process here, or one that ssh or srun starts there."""

import contextlib
import json
import os
import queue
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from openipu import environment
from openipu.launch.errors import LaunchError
from openipu.launch.hosts import Host

_EARLY = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
_AGENT = ("-m", "openipu.launch.agent")

# What ssh is told: to ask for no password, and to give up on hosts that do not answer.
_SSH = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")


class Connection:
    """The agent of one host.

    Args:
      host: where.
      shell: the command that starts a process on another host; empty for `srun` in an allocation of SLURM, else `ssh`.
      answers: where its answers go, each with the connection.
    """

    def __init__(
        self, host: Host, shell: Sequence[str], answers: "queue.Queue[tuple[Connection, dict | None]]"
    ) -> None:
        self.host = host
        self.described: dict[str, Any] = {}
        self._errors: list[str] = []
        command = _command(host, shell)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Ctrl-C is for the launcher, which tells the agents.
                start_new_session=True,
            )
        except OSError as error:
            raise LaunchError(f"The host {host.name} cannot be reached: {command[0]}: {error.strerror}.") from None
        self._threads = [
            threading.Thread(target=self._listen, args=(answers,), daemon=True),
            threading.Thread(target=self._collect, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, do: str, **arguments: Any) -> None:
        """Send a request; one to an agent that is gone is lost, which its end tells."""
        line = json.dumps({"do": do, "with": arguments}).encode() + b"\n"
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def close(self, patience: float) -> None:
        """Let the agent end, with all it has started; a connection that stays is cut."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.close()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def complaints(self) -> str:
        """What the way there said: ssh's errors, or those of Python on the other side."""
        self._threads[1].join(1.0)
        return "\n".join(self._errors[-10:]).strip()

    def _listen(self, answers: "queue.Queue[tuple[Connection, dict | None]]") -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                answers.put((self, json.loads(line)))
            except json.JSONDecodeError:
                # A greeting of the other side's shell.
                self._errors.append(line.decode(errors="replace").rstrip())
        answers.put((self, None))

    def _collect(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line.decode(errors="replace").rstrip())


def _command(host: Host, shell: Sequence[str]) -> list[str]:
    if host.local:
        return [sys.executable, *_AGENT]
    # What Python and the agent need to start; the rest goes with the instances, not where everybody can read it.
    given = [f"{n}={v}" for n, v in environment.forwarded().items() if n in _EARLY or n.startswith("OPENIPU_")]
    there = ["env", *given, sys.executable, *_AGENT]
    if not shell and environment.in_slurm_job() and shutil.which("srun"):
        return ["srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={host.name}", f"--chdir={os.getcwd()}",
                *there]  # fmt: skip
    ssh = list(shell) if shell else ["ssh"]
    if os.path.basename(ssh[0]) == "ssh":
        ssh += _SSH
    return [*ssh, host.name, f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(there)}"]


def shell_of(parameters: Mapping[str, str]) -> list[str]:
    """The command for other hosts, as Open MPI's parameters name it: `plm_rsh_agent` and `plm_rsh_args`."""
    agent, extra = environment.remote_shell()
    agent, extra = parameters.get("plm_rsh_agent") or agent, parameters.get("plm_rsh_args") or extra
    if not agent and not extra:
        return []
    return [*shlex.split(agent or "ssh"), *shlex.split(extra)]
