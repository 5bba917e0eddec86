"""Values of the host, exchanged between instances through JAX's coordination service, and matched by name.

Gradients never come here: they are reduced inside of programs. This is for seeds, initial values, metrics, layouts.
"""

import collections
import json
import threading
from collections.abc import Collection
from typing import Any

import numpy as np

from openipu.errors import InstanceError
from openipu.instances.group import current
from openipu.instances.joining import joined
from openipu.jax_boundary import CoordinationError, coordination_client

MISMATCH = "Tensor layouts did not match on all instances"

# The service keeps values until all have read them; in pieces, none is larger than a message may be.
_PIECE = 2**22

# Milliseconds of one look for another instance's value; there is no limit to how often an instance looks, because a
# launcher ends all of them when one dies.
_LOOK = 30_000

_lock = threading.Lock()
_turns: "collections.Counter[str]" = collections.Counter()


def gather(value: np.ndarray, name: str = "") -> np.ndarray:
    """The values of all instances that act together, along a new first axis.

    Args:
      value: of this instance; all must have the same shape and type.
      name: what is gathered. Instances may gather different things in different orders, or from several threads.
    """
    value = np.asarray(value)
    members = current()
    if len(members) == 1:
        return value[None].copy()
    return np.stack(_exchanged(value, name, members))


def broadcast(value: np.ndarray, root: int = 0, name: str = "") -> np.ndarray:
    """The value of one of the instances that act together; all give one of the same shape and type."""
    members = current()
    if root not in members:
        raise InstanceError(f"The root of a broadcast must be one of the instances {list(members)}. Received: {root}.")
    value = np.asarray(value)
    if len(members) == 1:
        return value.copy()
    return _exchanged(value, name, [root])[0].copy()


def equal(described: str, name: str) -> None:
    """Refuse to go on where instances are about to do different things: they would wait for each other for ever."""
    members = current()
    if len(members) == 1:
        return
    everyone = _texts(_turn(name, members), "said", described)
    if len(set(everyone.values())) > 1:
        lines = "".join(f"\n  instance {member}: {text}" for member, text in everyone.items())
        raise InstanceError(f"The instances do different things ({name}), and would wait for each other:{lines}")


def synchronize(name: str = "synchronize") -> None:
    """Wait until all instances that act together are here."""
    members = current()
    if len(members) > 1:
        _texts(_turn(name, members), "here", "")


def _exchanged(value: np.ndarray, name: str, senders: Collection[int]) -> list[np.ndarray]:
    """The values of some instances; those of the others are only compared in shape and type."""
    members = current()
    prefix = _turn(name, members)
    layouts = _texts(prefix, "layout", json.dumps([str(value.dtype), list(value.shape)]), len(senders))
    if len(set(layouts.values())) > 1:
        described = "; ".join(f"instance {member}: {text}" for member, text in layouts.items())
        raise InstanceError(f"{MISMATCH}{f' ({name})' if name else ''}: {described}.")
    data = value.tobytes()
    pieces = max(1, -(-len(data) // _PIECE))
    mine = _index()
    client = coordination_client()
    if mine in senders:
        for piece in range(pieces):
            client.key_value_set_bytes(f"{prefix}/{mine}/{piece}", data[piece * _PIECE : (piece + 1) * _PIECE])
    made = []
    for sender in senders:
        got = data
        if sender != mine:
            got = b"".join(
                _waited(client.blocking_key_value_get_bytes, f"{prefix}/{sender}/{i}") for i in range(pieces)
            )
        made.append(np.frombuffer(got, value.dtype).reshape(value.shape))
    _forget(prefix, len(members))
    return made


def _texts(prefix: str, what: str, mine: str, more: int = 0) -> dict[int, str]:
    """What every instance says, by its number; forgotten when all have read it, unless more is to follow."""
    client = coordination_client()
    members, index = current(), _index()
    # The service takes no empty values.
    client.key_value_set(f"{prefix}/{index}/{what}", f"={mine}")
    get = client.blocking_key_value_get
    everyone = {m: mine if m == index else _waited(get, f"{prefix}/{m}/{what}")[1:] for m in members}
    if not more:
        _forget(prefix, len(members))
    return everyone


def _waited(get: Any, key: str) -> Any:
    """Another instance's value, when it is there."""
    while True:
        try:
            return get(key, _LOOK)
        except CoordinationError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise InstanceError(f"Another instance is gone: {error}") from error


def _forget(prefix: str, readers: int) -> None:
    """Let the service forget what all have read."""
    client = coordination_client()
    if client.key_value_increment(f"{prefix}/read", 1) == readers:
        client.key_value_delete(f"{prefix}/")


def _turn(name: str, members: tuple[int, ...]) -> str:
    """The place of one exchange: the how manieth of its name among these instances it is."""
    topic = f"openipu/{'-'.join(map(str, members))}/{name}"
    with _lock:
        _turns[topic] += 1
        return f"{topic}/{_turns[topic]}"


def _index() -> int:
    place = joined()
    return place[0] if place is not None else 0
