"""Runs on every host of a launch: starts the host's instances, sends their output, ends them when it is told to.

It is told by lines of JSON on its standard input, and answers in lines of JSON. When its input ends, the launcher is
gone, and so is every process that was started here. `python -m openipu.launch.agent` needs nothing but this package.
"""

import base64
import contextlib
import json
import os
import platform
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from openipu import environment
from openipu.version import __version__

# Seconds between asking processes to end and ending them.
GRACE = 4.0


class Agent:
    """The instances of one host."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "wb", buffering=0)
        # What libraries print here must not come between answers.
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self._processes: dict[int, subprocess.Popen] = {}
        self._threads: list[threading.Thread] = []
        self._requests: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def serve(self) -> None:
        """Answer until the launcher is gone or says that it is over."""
        threading.Thread(target=self._listen, daemon=True).start()
        while (request := self._requests.get()) is not None:
            try:
                getattr(self, f"_{request['do']}")(**request.get("with", {}))
            except Exception as error:
                self._say(failed=f"{type(error).__name__}: {error}")
            if request["do"] == "end":
                break
        self._end()
        for thread in self._threads:
            thread.join()

    def _listen(self) -> None:
        for line in sys.stdin.buffer:
            self._requests.put(json.loads(line))
        self._requests.put(None)

    def _describe(self, ipus: int, attach: bool) -> None:
        """Say what is here: versions, a free port, and the groups of IPUs that nobody holds."""
        from openipu import hardware

        system = hardware.current_system()
        busy = set(hardware.attached_ipus()) if attach else set()
        size = hardware.group_size(ipus)
        free = []
        for device in system.devices():
            if device.count == size and busy.isdisjoint(device.ipus):
                busy.update(device.ipus)
                free.append(device.id)
        self._say(
            described={
                "version": __version__,
                "python": platform.python_version(),
                "port": _free_port(),
                "addresses": _addresses(),
                "machine": f"{_boot()} {hardware.registry_directory()} {system.name}",
                "system": system.name,
                "ipus": system.count,
                "size": size,
                "free": free,
            }
        )

    def _start(self, instances: list[dict[str, Any]], command: list[str], folder: str) -> None:
        for instance in instances:
            index = int(instance["index"])
            variables = environment.for_child(**instance["variables"])
            try:
                process = subprocess.Popen(
                    command,
                    env=variables,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                named = error.filename if error.filename is not None else command[0]
                self._say(failed=f"{command[0]} cannot be started: {error.strerror} ({named}).")
                return
            self._processes[index] = process
            self._say(started=index, pid=process.pid)
            readers = [self._thread(self._forward, index, process, stream) for stream in ("stdout", "stderr")]
            self._thread(self._reap, index, process, readers)

    def _stop(self, sign: int = signal.SIGTERM) -> None:
        """Ask all instances to end; those that do not are ended."""
        self._signal(sign)
        self._thread(self._insist)

    def _insist(self) -> None:
        until = time.monotonic() + GRACE
        while time.monotonic() < until and any(p.poll() is None for p in self._processes.values()):
            time.sleep(0.05)
        self._signal(signal.SIGKILL)

    def _end(self) -> None:
        """Nothing that was started here stays."""
        if any(process.poll() is None for process in self._processes.values()):
            self._signal(signal.SIGTERM)
            self._insist()
        # Also what instances have started themselves and left behind.
        self._signal(signal.SIGKILL)

    def _signal(self, sign: int) -> None:
        for process in list(self._processes.values()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, sign)

    def _thread(self, function: Any, *arguments: Any) -> threading.Thread:
        made = threading.Thread(target=function, args=arguments)
        self._threads.append(made)
        made.start()
        return made

    def _forward(self, index: int, process: subprocess.Popen, stream: str) -> None:
        source = getattr(process, stream)
        while data := source.read1(2**16):
            self._say(instance=index, stream=stream, data=base64.b64encode(data).decode())

    def _reap(self, index: int, process: subprocess.Popen, readers: list[threading.Thread]) -> None:
        code = process.wait()
        ended = time.time()
        for reader in readers:
            # A process that was left behind may keep the pipe open.
            reader.join(1.0)
        self._say(ended=index, code=code, time=ended, pid=process.pid)

    def _say(self, **answer: Any) -> None:
        line = json.dumps(answer).encode() + b"\n"
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._answers.write(line)


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as found:
        found.bind(("", 0))
        return found.getsockname()[1]


def _addresses() -> list[str]:
    import psutil

    wanted = (socket.AF_INET, socket.AF_INET6)
    return [a.address for each in psutil.net_if_addrs().values() for a in each if a.family in wanted]


def _boot() -> str:
    """What tells machines apart, where two names may be one machine."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return socket.gethostname()


def main() -> None:
    """Serve a launcher."""
    # Ctrl-C goes to the launcher, which decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Agent().serve()


if __name__ == "__main__":
    main()
