"""Attaching this process to groups of IPUs, which it shares with all other processes of the user."""

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable

import attrs

from openipu import environment
from openipu.errors import OutOfIpusError
from openipu.hardware import registry
from openipu.hardware.processes import command_line, short_command, this_process, user_name
from openipu.hardware.registry import Holding, RegistryError
from openipu.hardware.system import Device, System, current_system, ipu_numbers
from openipu.hardware.waiting import Patience, Wait

# Letters of another program's command that an error message has room for.
MAX_COMMAND = 80

# Chooses groups, given the IPUs that are held; raises OutOfIpusError where there are none to choose.
Choice = Callable[[frozenset[int]], Collection[Device]]


@attrs.frozen
class _Held:
    partition: str
    device: Device
    since: float


# Reentrant, because a holder may be collected as garbage, and detach, anywhere in here.
_lock = threading.RLock()
_held: list[_Held] = []


def claim(choose: Choice, wait: Wait | None = None, system: System | None = None) -> tuple[Device, ...]:
    """Holds all groups that `choose` chooses, or none; no other process can come between choosing and holding.

    Args:
      choose: the groups, given the IPUs that are held; may be called several times.
      wait: how to wait while other processes hold too many IPUs; None to be refused at once.
      system: the partition; the current system if None.

    Returns:
      The groups, as chosen.
    """
    partition = system or current_system()
    if not environment.attaches():
        return _checked(choose, frozenset())
    if wait is None:
        return _claim_now(choose, partition)
    with Patience(wait) as patience:
        while True:
            try:
                return _claim_now(choose, partition)
            except OutOfIpusError as error:
                # Waiting for what this process holds itself would never end.
                if not _fits(choose, _ipus(held.device for held in _held_in(partition.name))):
                    raise
                patience.pause(error)


def preview(choose: Choice, leaving: Collection[Device] = ()) -> tuple[Device, ...]:
    """What `claim` would hold at this moment; refused as `claim` would.

    Args:
      choose: as for `claim`.
      leaving: groups of this process that it would release before.
    """
    system = current_system()
    if not environment.attaches():
        return _checked(choose, frozenset())
    with _lock:
        own = tuple(holding for holding in _own(system.name) if holding.ipus not in {device.ipus for device in leaving})
        return _choose(choose, _others(registry.read(system.name)), own)


def attach(device: Device, wait: Wait | None = None) -> None:
    """Holds a group of IPUs; refused if any of them is held already, by this process or another."""
    claim(lambda busy: (device,), wait)


def acquire(count: int, wait: Wait | None = None) -> Device:
    """Holds the first free group of `count` IPUs of the current system."""
    system = current_system()
    (device,) = claim(lambda busy: (system.device(count, busy),), wait, system)
    return device


def detach(device: Device) -> None:
    """Releases a group; one that this process does not hold is left alone."""
    with _lock:
        for held in _held:
            if held.device == device:
                _held.remove(held)
                _publish(held.partition)
                return


def attached() -> tuple[Device, ...]:
    """The groups this process holds, oldest first."""
    with _lock:
        return tuple(held.device for held in _held)


def attached_ipus(system: System | None = None) -> frozenset[int]:
    """The IPUs of a system that any process holds; of the current system if None."""
    return _ipus(holders(system))


def holders(system: System | None = None) -> tuple[Holding, ...]:
    """Who holds IPUs of a system, in the order of the IPUs; of the current system if None."""
    name = (system or current_system()).name
    with _lock:
        holdings = (*_others(registry.read(name)), *_own(name))
    return tuple(sorted(holdings, key=lambda holding: holding.ipus))


def _claim_now(choose: Choice, system: System) -> tuple[Device, ...]:
    with _lock, registry.locked(system.name) as holdings:
        others = _others(holdings)
        devices = _choose(choose, others, _own(system.name))
        new = [_Held(system.name, device, time.time()) for device in devices]
        _held.extend(new)
        try:
            registry.write(system.name, (*others, *_own(system.name)))
        except BaseException:
            for held in new:
                _held.remove(held)
            raise
        return devices


def _choose(choose: Choice, others: Collection[Holding], own: Collection[Holding]) -> tuple[Device, ...]:
    try:
        return _checked(choose, _ipus([*others, *own]))
    except OutOfIpusError as error:
        # Refused in its own words what not even an empty pod has.
        _checked(choose, frozenset())
        raise OutOfIpusError(f"{error} {_naming(others, own)}") from None


def _fits(choose: Choice, busy: frozenset[int]) -> bool:
    try:
        _checked(choose, busy)
    except OutOfIpusError:
        return False
    return True


def _checked(choose: Choice, busy: frozenset[int]) -> tuple[Device, ...]:
    devices = tuple(choose(busy))
    taken = set(busy)
    for device in devices:
        if held := sorted(taken.intersection(device.ipus)):
            raise OutOfIpusError(
                f"Cannot attach to IPU device {device.id} with the IPUs {_listing(device.ipus)}: already held are the "
                f"IPUs {_listing(held)}. Choose other IPUs, or detach first."
            )
        taken.update(device.ipus)
    return devices


def _publish(partition: str) -> None:
    with registry.locked(partition) as holdings:
        registry.write(partition, (*_others(holdings), *_own(partition)))


def _others(holdings: Iterable[Holding]) -> tuple[Holding, ...]:
    # What this process holds is known here better than in the file, which may be older than a lost registry.
    return tuple(holding for holding in holdings if holding.pid != os.getpid())


def _own(partition: str) -> tuple[Holding, ...]:
    held = _held_in(partition)
    if not held:
        return ()
    identity, command, user = this_process(), command_line(), user_name()
    return tuple(
        Holding(identity.pid, identity.started, one.device.id, one.device.ipus, one.since, command, user)
        for one in held
    )


def _held_in(partition: str) -> list[_Held]:
    return [held for held in _held if held.partition == partition]


def _ipus(groups: Iterable[Device | Holding]) -> frozenset[int]:
    return frozenset(ipu for group in groups for ipu in group.ipus)


def _naming(others: Iterable[Holding], own: Iterable[Holding]) -> str:
    parts = [f"{ipu_numbers(h.ipus)} by process {h.pid} ({_named(h.command)})" for h in others]
    parts += [f"{ipu_numbers(h.ipus)} by this process" for h in own]
    return f"Held are the IPUs {'; '.join(parts)}." if parts else ""


def _named(command: str) -> str:
    text = short_command(command)
    return text if len(text) <= MAX_COMMAND else f"{text[: MAX_COMMAND - 3]}..."


def _listing(numbers: Collection[int]) -> str:
    return ", ".join(str(number) for number in numbers)


@atexit.register
def _release_all() -> None:
    with _lock, contextlib.suppress(RegistryError):
        partitions = {held.partition for held in _held}
        _held.clear()
        for partition in partitions:
            _publish(partition)


def _begin_as_child() -> None:
    global _lock
    # IPUs belong to the process that attached them: the child neither holds nor can release its parent's.
    _held.clear()
    registry.forget_locks()
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    # Nobody forks in the middle of a change, or the child would keep the file's lock.
    os.register_at_fork(
        before=lambda: _lock.acquire(), after_in_parent=lambda: _lock.release(), after_in_child=_begin_as_child
    )
