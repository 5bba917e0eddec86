"""The virtual machine's IPUs, and the groups of them that a program can hold."""

import re
from collections.abc import Collection, Iterable, Iterator

import attrs

from openipu import settings
from openipu.errors import OutOfIpusError
from openipu.hardware.target import TARGETS, Target

POD_TARGETS = ("bow", "mk2", "mk1")
POD_SIZES = (4, 16, 64)


@attrs.frozen
class Device:
    """A group of IPUs that a program can hold.

    Args:
      id: its number in the system: single IPUs first, then pairs, then fours and so on.
      ipus: the numbers of the IPUs in it.
      target: what kind of IPU they are.
    """

    id: int
    ipus: tuple[int, ...]
    target: Target = attrs.field(repr=lambda target: target.name)

    @property
    def count(self) -> int:
        """How many IPUs it has."""
        return len(self.ipus)


@attrs.frozen
class System:
    """A partition of `count` IPUs of one kind."""

    name: str
    target: Target
    count: int = attrs.field(validator=attrs.validators.ge(1))

    def devices(self) -> Iterator[Device]:
        """Every group, in the order of its id: IPUs that follow each other, as many as a power of two."""
        number, size = 0, 1
        while size <= self.count:
            for first in range(0, self.count - size + 1, size):
                yield Device(number, tuple(range(first, first + size)), self.target)
                number += 1
            size *= 2

    def by_id(self, device_id: int) -> Device:
        """The group with this id."""
        known = list(self.devices())
        if not 0 <= device_id < len(known):
            raise OutOfIpusError(
                f"There is no IPU device with id {device_id}: {self} has the ids 0 to {len(known) - 1}. "
                "Choose one of them, or set OPENIPU_SYSTEM to a larger system."
            )
        return known[device_id]

    def device(self, count: int, taken: Collection[int] = (), purpose: str = "") -> Device:
        """The first free group of `count` IPUs.

        Args:
          count: how many IPUs, a power of two.
          taken: IPUs that others hold.
          purpose: what the group is for, in the words of the error message.

        Returns:
          The group with the lowest id that has no taken IPU.
        """
        wanted_for = f" for {purpose}" if purpose else ""
        if count < 1 or count & (count - 1):
            raise ValueError(
                f"Unsupported number of IPUs requested - could not find an IPU device with {count} IPUs{wanted_for}: "
                f"a device has a power of two of them. Ask for {_neighbours(count)}."
            )
        if count > self.count:
            raise OutOfIpusError(
                f"{count} IPUs were requested{wanted_for}, but {self} has {self.count}. "
                f"Ask for {self.count} or fewer, or set OPENIPU_SYSTEM={count}x{self.target.name}."
            )
        busy = set(taken)
        for device in self.devices():
            if device.count == count and busy.isdisjoint(device.ipus):
                return device
        free = self.count - len(busy)
        raise OutOfIpusError(
            f"{count} IPUs were requested{wanted_for}, but no such group is free: {len(busy)} of the {self.count} IPUs "
            f"of {self} are held and {free} are free. Release some, or set OPENIPU_SYSTEM to a larger system."
        )

    def __str__(self) -> str:
        return f"the virtual system {self.name}"


def pod_names() -> tuple[str, ...]:
    """The names of all pods."""
    return tuple(f"{target}-pod{size}" for target in POD_TARGETS for size in POD_SIZES)


def parse_system(name: str, source: str = "OPENIPU_SYSTEM") -> System:
    """The system of this name.

    Args:
      name: a pod such as `bow-pod16`, or a count and a target such as `2xbow`.
      source: where the name comes from, for the error message.
    """
    text = name.strip().lower()
    pod = re.fullmatch(r"([a-z]\w*)-pod(\d+)", text)
    if pod and pod[1] in POD_TARGETS and int(pod[2]) in POD_SIZES:
        return System(text, TARGETS[pod[1]], int(pod[2]))
    counted = re.fullmatch(r"([1-9]\d*)x(\w+)", text)
    if counted and counted[2] in TARGETS:
        return System(text, TARGETS[counted[2]], int(counted[1]))
    what = source if source == "OPENIPU_SYSTEM" else "The name of a virtual system"
    received = f"OPENIPU_SYSTEM={name!r}" if source == "OPENIPU_SYSTEM" else f"{name!r}, from {source}"
    raise ValueError(
        f"{what} must be one of: {', '.join(pod_names())}; or a count and a target, such as 2xbow "
        f"(targets: {', '.join(TARGETS)}). Received: {received}."
    )


def current_system() -> System:
    """The virtual system of this machine: from OPENIPU_SYSTEM, or as `openipu system use` was told."""
    return parse_system(*settings.system_choice())


def ipu_numbers(values: Iterable[int]) -> str:
    """IPU numbers; runs of them as first-last."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and runs[-1][1] + 1 == value:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def group_size(ipus: int) -> int:
    """The IPUs of the smallest group that holds so many: groups are powers of two."""
    return 1 << (ipus - 1).bit_length()


def _neighbours(count: int) -> str:
    if count < 1:
        return "1 or more"
    below = 1 << (count.bit_length() - 1)
    return f"{below} or {2 * below}"
