"""Which groups of IPUs are held right now; the one place that knows, so that processes can share it later."""

import threading

from openipu.errors import OutOfIpusError
from openipu.hardware.system import Device

_lock = threading.Lock()
_held: list[Device] = []


def attach(device: Device) -> None:
    """Holds a group of IPUs; refused if any of them is held already."""
    with _lock:
        busy = sorted({ipu for held in _held for ipu in held.ipus}.intersection(device.ipus))
        if busy:
            raise OutOfIpusError(
                f"Cannot attach to IPU device {device.id} with the IPUs {_listing(device.ipus)}: already held are the "
                f"IPUs {_listing(busy)}. Choose other IPUs, or detach first."
            )
        _held.append(device)


def detach(device: Device) -> None:
    """Releases a group; one that is not held is left alone."""
    with _lock:
        if device in _held:
            _held.remove(device)


def attached() -> tuple[Device, ...]:
    """The groups held, oldest first."""
    with _lock:
        return tuple(_held)


def attached_ipus() -> frozenset[int]:
    """The IPUs held."""
    return frozenset(ipu for device in attached() for ipu in device.ipus)


def _listing(numbers: tuple[int, ...] | list[int]) -> str:
    return ", ".join(str(number) for number in numbers)
