"""One launch: agents on all hosts, instances on all agents, watched until all have ended or one has died."""

import base64
import contextlib
import ipaddress
import os
import queue
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from openipu import environment
from openipu.launch import variables
from openipu.launch.agent import GRACE
from openipu.launch.connection import Connection
from openipu.launch.errors import LaunchError
from openipu.launch.hosts import Host
from openipu.launch.output import Output
from openipu.launch.topology import Instance, Topology
from openipu.version import __version__

# Seconds that a host has to answer, and that others have to die of the same cause as the first.
_ANSWER = 60.0
_TOGETHER = 0.4

# What collectives and the coordination service say of a peer that has died.
_GONE = re.compile(r"Gloo .* failed|[Cc]oordination ?(service|agent|Service)|Another instance is gone|heartbeat")


@attrs.frozen
class Death:
    """How an instance ended that should not have."""

    instance: int
    code: int
    time: float
    pid: int

    @property
    def exit_code(self) -> int:
        """The launcher's, as a shell would give it."""
        return 128 - self.code if self.code < 0 else self.code

    def __str__(self) -> str:
        if self.code >= 0:
            return f"exited with code {self.code}"
        try:
            return f"was killed by signal {-self.code} ({signal.Signals(-self.code).name})"
        except ValueError:
            return f"was killed by signal {-self.code}"


@attrs.frozen
class Wishes:
    """What is to be started, and how.

    Attributes:
      command: the program with its arguments.
      topology: which instances.
      attach: whether IPUs are needed.
      variables: for all instances.
      own_variables: for single instances, by number.
      shell: what starts processes on other hosts; empty for ssh.
      subnet: of the addresses that instances meet at.
    """

    command: Sequence[str]
    topology: Topology
    attach: bool = True
    variables: Mapping[str, str] = attrs.field(factory=dict)
    own_variables: Mapping[int, Mapping[str, str]] = attrs.field(factory=dict)
    shell: Sequence[str] = ()
    subnet: str | None = None


class Job:
    """A launch.

    Args:
      wishes: what is to be started.
      output: where the instances' output goes.
      say: tells the user a step: (level letter, text).
      complain: tells the user what went wrong.
    """

    def __init__(
        self, wishes: Wishes, output: Output, say: Callable[[str, str], None], complain: Callable[[str], None]
    ) -> None:
        self._wishes = wishes
        self._output = output
        self._say = say
        self._complain = complain
        self._answers: queue.Queue[tuple[Connection, dict | None]] = queue.Queue()
        self._connections: dict[Host, Connection] = {}
        self._running: set[int] = set()
        self._deaths: list[Death] = []

    def run(self) -> int:
        """Start everything, wait for its end, and give back the exit code."""
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Shells start what is in the background with interrupts ignored: that is no wish. What nohup does, is one.
            if sign is not signal.SIGHUP or signal.getsignal(sign) is not signal.SIG_IGN:
                signal.signal(sign, _interrupt)
        try:
            self._connect()
            devices = self._devices()
            self._start(devices)
            self._watch()
        except KeyboardInterrupt as reason:
            self._complain("Interrupted: ending all instances.")
            self._stop()
            return 128 + (reason.args[0] if reason.args else signal.SIGINT)
        finally:
            with contextlib.suppress(KeyboardInterrupt):
                for connection in self._connections.values():
                    connection.close(GRACE + 3)
        if not self._deaths:
            return 0
        return self._explain()

    def _connect(self) -> None:
        """Reach all hosts before anything starts."""
        topology = self._wishes.topology
        for host in topology.hosts:
            self._connections[host] = Connection(host, self._wishes.shell, self._answers)
        ipus = topology.local_replicas * topology.ipus_per_replica
        for connection in self._connections.values():
            connection.ask("describe", ipus=ipus, attach=self._wishes.attach)
        missing = set(self._connections.values())
        until = time.monotonic() + _ANSWER
        while missing:
            connection, answer = self._next(until)
            if connection is None:
                names = ", ".join(c.host.name for c in missing)
                raise LaunchError(f"No answer for {_ANSWER:.0f} s from: {names}.")
            if answer is None:
                raise _unreachable(connection)
            if "described" not in answer:
                raise LaunchError(f"The host {connection.host.name} answered: {answer.get('failed', answer)}")
            connection.described = answer["described"]
            _check_version(connection)
            missing.discard(connection)
            self._say("D", f"{connection.host.name} is ready: {connection.described['system']}")

    def _devices(self) -> dict[int, int | None]:
        """A group of IPUs for every instance; refused where there are too few."""
        topology, made = self._wishes.topology, {}
        if not self._wishes.attach:
            return {instance.index: None for instance in topology.instances}
        free: dict[str, list[int]] = {}
        for host, connection in self._connections.items():
            facts = connection.described
            # Two names of one machine share its IPUs.
            groups = free.setdefault(facts["machine"], list(facts["free"]))
            needed = topology.on(host)
            if len(groups) < len(needed):
                size = facts["size"]
                busy = " Others hold some of them; see gc-monitor." if facts["ipus"] >= size * len(needed) else ""
                raise LaunchError(
                    f"{len(needed)} instances of {size} IPUs each were asked for on {host.name}, but its virtual "
                    f"system {facts['system']} with {facts['ipus']} IPUs has {len(groups)} such groups free.{busy} "
                    f"Use fewer replicas, or set OPENIPU_SYSTEM to a larger system."
                )
            for instance in needed:
                made[instance.index] = groups.pop(0)
        return made

    def _start(self, devices: Mapping[int, int | None]) -> None:
        topology = self._wishes.topology
        coordinator = self._coordinator()
        for host, connection in self._connections.items():
            given = [self._variables(i, devices[i.index], coordinator) for i in topology.on(host)]
            connection.ask("start", instances=given, command=list(self._wishes.command), folder=os.getcwd())
        self._running = {instance.index for instance in topology.instances}
        self._say("I", f"Started {len(self._running)} instances of: {' '.join(self._wishes.command)}")

    def _variables(self, instance: Instance, device: int | None, coordinator: str) -> dict[str, Any]:
        own = variables.of_instance(self._wishes.topology, instance, device, coordinator)
        if not self._wishes.attach:
            own["OPENIPU_ATTACH"] = "off"
        extra = self._wishes.own_variables.get(instance.index, {})
        along = {} if instance.host.local else environment.forwarded()
        given = variables.merged(along, self._wishes.variables, extra, own)
        return {"index": instance.index, "variables": given}

    def _coordinator(self) -> str:
        """Where instances meet: at the first host, by a name or an address that the others can use."""
        first = self._wishes.topology.hosts[0]
        facts = self._connections[first].described
        address = first.name
        if all(host.local for host in self._wishes.topology.hosts):
            address = "127.0.0.1"
        elif self._wishes.subnet is not None:
            address = _within(facts["addresses"], self._wishes.subnet, first.name)
        elif first.local:
            outside = [a for a in facts["addresses"] if ":" not in a and not a.startswith("127.")]
            address = outside[0] if outside else first.name
        return f"{address}:{facts['port']}"

    def _watch(self) -> None:
        """Print output until all instances have ended, or until one has died and all others are ended."""
        until: float | None = None
        while self._running or until is not None:
            connection, answer = self._next(until)
            if connection is None:
                break
            if answer is None:
                self._lost(connection)
            elif "stream" in answer:
                self._output.add(answer["instance"], answer["stream"], base64.b64decode(answer["data"]))
            elif "failed" in answer:
                raise LaunchError(f"On {connection.host.name}: {answer['failed']}")
            elif "started" in answer:
                self._say("D", f"Instance {answer['started']} is process {answer['pid']} of {connection.host.name}")
            elif "ended" in answer:
                self._ended(answer)
            if self._deaths and until is None:
                # Others may be dying of the same; who was first is known in a moment.
                until = time.monotonic() + _TOGETHER
        if self._deaths:
            self._stop()

    def _ended(self, answer: dict) -> None:
        index = answer["ended"]
        self._running.discard(index)
        self._output.finish(index)
        self._say("D", f"Instance {index} has ended with code {answer['code']}")
        if answer["code"]:
            self._deaths.append(Death(index, answer["code"], answer["time"], answer["pid"]))

    def _lost(self, connection: Connection) -> None:
        """A connection that is gone takes its instances along."""
        here = [i.index for i in self._wishes.topology.on(connection.host) if i.index in self._running]
        if here:
            raise LaunchError(
                f"The connection to {connection.host.name} is lost, and with it the instances "
                f"{', '.join(map(str, here))}. {connection.complaints}".strip()
            )

    def _stop(self) -> None:
        """End all instances, printing what they still say."""
        for connection in self._connections.values():
            connection.ask("stop")
        until = time.monotonic() + GRACE + 2
        while self._running:
            connection, answer = self._next(until)
            if connection is None:
                return
            if answer is not None and "stream" in answer:
                self._output.add(answer["instance"], answer["stream"], base64.b64decode(answer["data"]))
            elif answer is not None and "ended" in answer:
                self._running.discard(answer["ended"])
                self._output.finish(answer["ended"])

    def _explain(self) -> int:
        first = min(self._deaths, key=lambda death: (self._followed(death), death.time))
        instance = self._wishes.topology.instances[first.instance]
        text = f"Instance {first.instance} (process {first.pid} on {instance.host.name}) {first}."
        if len(self._wishes.topology.instances) > 1:
            text += " All other instances were ended."
        if last := self._output.last_errors(first.instance):
            text += " The last lines of its stderr:" + "".join(f"\n    {line}" for line in last)
        self._complain(text)
        return first.exit_code

    def _followed(self, death: Death) -> bool:
        """Whether an instance died because another was gone: in the same moment, the order of both is chance."""
        return any(_GONE.search(line) for line in self._output.last_errors(death.instance))

    def _next(self, until: float | None) -> tuple[Connection | None, dict | None]:
        """The next answer; none when the time is over."""
        while True:
            left = 1.0 if until is None else min(1.0, max(until - time.monotonic(), 0.0))
            with contextlib.suppress(queue.Empty):
                return self._answers.get(timeout=left or 0.001)
            if until is not None and time.monotonic() >= until:
                return None, None


def _interrupt(sign: int, frame: object) -> None:
    """What asks the launcher to end is as good as Ctrl-C."""
    raise KeyboardInterrupt(sign)


def _check_version(connection: Connection) -> None:
    version = connection.described["version"]
    if version != __version__:
        raise LaunchError(
            f"{connection.host.name} has openipu {version}, and this host {__version__}. Install the same."
        )


def _unreachable(connection: Connection) -> LaunchError:
    said = connection.complaints
    return LaunchError(f"The host {connection.host.name} cannot be reached" + (f":\n{said}" if said else "."))


def _within(addresses: Sequence[str], subnet: str, host: str) -> str:
    network = ipaddress.ip_network(subnet, strict=False)
    for address in addresses:
        if ipaddress.ip_address(address.split("%")[0]) in network:
            return address
    raise LaunchError(f"The host {host} has no address in --host-subnet {subnet}. It has: {', '.join(addresses)}.")
