"""Which instance has which replicas on which host: checked numbers, and a picture of them."""

from collections.abc import Sequence

import attrs

from openipu.launch.errors import LaunchError
from openipu.launch.hosts import Host


@attrs.frozen
class Instance:
    """One process to be started.

    Attributes:
      index: among all.
      host: where.
      local_index, local_count: among those of its host.
      offset: its first replica.
      replicas: how many it has.
    """

    index: int
    host: Host
    local_index: int
    local_count: int
    offset: int
    replicas: int


@attrs.frozen
class Topology:
    """How replicas are divided among instances, and instances among hosts.

    Attributes:
      hosts: in order.
      instances: in order; those of a host are neighbours.
      replicas: of all instances.
      ipus_per_replica: IPUs of one replica.
    """

    hosts: tuple[Host, ...]
    instances: tuple[Instance, ...]
    replicas: int
    ipus_per_replica: int

    @property
    def local_replicas(self) -> int:
        """Replicas of one instance."""
        return self.replicas // len(self.instances)

    def on(self, host: Host) -> tuple[Instance, ...]:
        """The instances of a host."""
        return tuple(instance for instance in self.instances if instance.host == host)

    def picture(self) -> str:
        """A table of hosts, link domains, instances and replicas."""
        width = max(len(str(self.replicas - 1)) + 2, 3)
        spans = {host: len(self.on(host)) * self.local_replicas for host in self.hosts}
        for host in self.hosts:
            # A replica's cell is as wide as its host's name needs.
            width = max(width, -(-(len(host.name) + 3) // spans[host]) - 1)
        rows = [
            ("hosts", [(host.name, spans[host]) for host in self.hosts]),
            ("ILDs", [("0", self.replicas)]),
            ("instances", [(str(instance.index), instance.replicas) for instance in self.instances]),
            ("replicas", [(str(number), 1) for number in range(self.replicas)]),
        ]
        total = 12 + self.replicas * (width + 1) - 1
        line = f" {'=' * total}"
        body = [line, f"|{'poprun topology':^{total}}|", f"|{'=' * total}|"]
        for index, (name, cells) in enumerate(rows):
            drawn = "|".join(f"{text:^{span * (width + 1) - 1}}" for text, span in cells)
            body.append(f"| {name:<10}|{drawn}|")
            if index + 1 < len(rows):
                below = "|".join("-" * (span * (width + 1) - 1) for _, span in cells)
                body.append(f"|{'-' * 11}|{below}|")
        return "\n".join([*body, f" {'-' * total}"])


def arrange(hosts: Sequence[Host], instances: int | None, replicas: int, ipus_per_replica: int) -> Topology:
    """The topology of these numbers; refused if they do not fit each other.

    Args:
      hosts: in order.
      instances: how many; None for as many as the hosts ask for, or one.
      replicas: of all instances.
      ipus_per_replica: IPUs of one replica.
    """
    asked = [host.slots for host in hosts]
    if any(slots is not None for slots in asked):
        counts = [slots or 1 for slots in asked]
        if instances is not None and sum(counts) != instances:
            raise LaunchError(
                f"The hosts ask for {sum(counts)} instances ({_listed(hosts, counts)}), but --num-instances is "
                f"{instances}. Make them equal, or leave one of them out."
            )
    else:
        instances = 1 if instances is None else instances
        if instances % len(hosts):
            raise LaunchError(
                f"--num-instances must be divisible by the number of hosts. Received: {instances} instances, "
                f"{len(hosts)} hosts. Use {_near(instances, len(hosts))}."
            )
        counts = [instances // len(hosts)] * len(hosts)
    total = sum(counts)
    if replicas % total:
        raise LaunchError(
            f"--num-replicas must be divisible by --num-instances. Received: {replicas} replicas, {total} instances. "
            f"Use {_near(replicas, total)} replicas."
        )
    local = replicas // total
    made = []
    for host, count in zip(hosts, counts, strict=True):
        for number in range(count):
            index = len(made)
            made.append(Instance(index, host, number, count, index * local, local))
    return Topology(tuple(hosts), tuple(made), replicas, ipus_per_replica)


def _near(given: int, divisor: int) -> str:
    lower = given // divisor * divisor
    return " or ".join(str(n) for n in (lower, lower + divisor) if n)


def _listed(hosts: Sequence[Host], counts: Sequence[int]) -> str:
    return ", ".join(f"{host.name}: {count}" for host, count in zip(hosts, counts, strict=True))
