"""Where the operations of this thread belong: the current IPU device and the attributes of the enclosing scopes."""

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping

# The attribute that carries shard indices from `ipu_shard` through the capture to the lowering.
SHARD_ATTRIBUTE = "openipu.shard"

_DEVICE_NAME = re.compile(r"(?:/job:[^/]+)?(?:/replica:\d+)?(?:/task:\d+)?/?(?:device:)?IPU:(\d+)", re.IGNORECASE)


class _State(threading.local):
    def __init__(self) -> None:
        self.devices: list[int] = []
        self.attributes: dict[str, str] = {}


_state = _State()


def device_name(ordinal: int) -> str:
    """TensorFlow's name of an IPU device."""
    return f"/device:IPU:{ordinal}"


def parse_ordinal(device: str) -> int:
    """The number in a device name such as `/device:IPU:0`."""
    match = _DEVICE_NAME.fullmatch(device) if isinstance(device, str) else None
    if match is None:
        raise ValueError(f"device must name an IPU device, such as '/device:IPU:0'. Received: device={device!r}.")
    return int(match[1])


def current_device() -> int | None:
    """The ordinal of the innermost IPU device scope, or None outside of all of them."""
    return _state.devices[-1] if _state.devices else None


@contextlib.contextmanager
def on_device(ordinal: int) -> Iterator[None]:
    """Places what is created inside on `/device:IPU:<ordinal>`."""
    _state.devices.append(ordinal)
    try:
        yield
    finally:
        _state.devices.pop()


def current_attributes() -> dict[str, str]:
    """The attributes that operations created now get."""
    return dict(_state.attributes)


def set_attributes(attributes: Mapping[str, str]) -> None:
    """Replaces the attributes that operations created from now on get."""
    _state.attributes = dict(attributes)


def format_shards(shards: tuple[int, ...]) -> str:
    """Shard indices as the value of the shard attribute."""
    return ",".join(str(shard) for shard in shards)


def parse_shards(text: str | None) -> tuple[int, ...] | None:
    """The shard indices in the value of the shard attribute."""
    return tuple(int(part) for part in text.split(",")) if text else None
