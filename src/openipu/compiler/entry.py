"""One cached executable as a file: what it is, the bytes XLA made, and a hash over both."""

import hashlib
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

MAGIC = b"openipu executable 1\n"
_SIZE = 8
_HASH = hashlib.sha256().digest_size


class BadEntry(Exception):
    """A file that is not a whole, unchanged entry for the wanted key; the text says why."""


def pack(header: dict[str, Any], payload: bytes) -> bytes:
    """The bytes of an entry."""
    text = json.dumps(header, sort_keys=True).encode()
    packed = zlib.compress(payload, 1)
    body = MAGIC + len(text).to_bytes(_SIZE, "little") + text + packed
    return body + hashlib.sha256(body).digest()


def unpack(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and payload of an entry's bytes; refused unless every byte is as it was written."""
    if not data.startswith(MAGIC):
        raise BadEntry("it is no executable of openipu, or of another format")
    body, digest = data[:-_HASH], data[-_HASH:]
    if hashlib.sha256(body).digest() != digest:
        raise BadEntry("it is incomplete or was changed: its hash does not match")
    start = len(MAGIC) + _SIZE
    end = start + int.from_bytes(body[len(MAGIC) : start], "little")
    return json.loads(body[start:end]), zlib.decompress(body[end:])


def read(path: Path, key: str) -> tuple[dict[str, Any], bytes]:
    """Header and payload of the entry in a file, which must be that of `key`."""
    header, payload = unpack(path.read_bytes())
    if header.get("key") != key:
        raise BadEntry(f"it belongs to another program ({header.get('name')})")
    return header, payload


def write(path: Path, data: bytes) -> None:
    """Write a file so that others see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
