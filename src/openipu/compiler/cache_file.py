"""One cached executable as a file: what it is, the bytes XLA made, and a hash over both."""

import hashlib
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

from openipu.compiler import trust

MAGIC = b"openipu executable 2\n"
_SIZE = 8
_NOT_WAITING = getattr(os, "O_NONBLOCK", 0)
_HASH = hashlib.sha256().digest_size
# Bytes of a file and of an executable; the largest that were seen are some tens of MiB.
LARGEST = 2**30


class BadEntry(Exception):
    """A file that is not a whole, unchanged entry for the wanted key; the text says why."""


def pack(header: dict[str, Any], payload: bytes) -> bytes:
    """The bytes of an entry."""
    text = json.dumps({**header, "bytes": len(payload)}, sort_keys=True).encode()
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
    try:
        header = json.loads(body[start:end])
        if not isinstance(header, dict):
            raise ValueError("its header is no object")
        return header, _expanded(body[end:], header.get("bytes"))
    except (ValueError, RecursionError, zlib.error, MemoryError) as error:
        # A hash only says that the contents are those that somebody wrote.
        raise BadEntry(f"its contents make no sense: {error or type(error).__name__}") from error


def _expanded(packed: bytes, size: Any) -> bytes:
    """As many bytes as the header says, and never more: a few packed ones may be made to fill all memory."""
    if not isinstance(size, int) or not 0 <= size <= LARGEST:
        raise ValueError(f"an executable of {size!r} bytes")
    stream = zlib.decompressobj()
    payload = stream.decompress(packed, size + 1)
    if len(payload) != size or not stream.eof or stream.unused_data:
        raise ValueError(f"the executable is not of the {size} bytes that its header tells")
    return payload


def read(path: Path, key: str) -> tuple[dict[str, Any], bytes]:
    """Header and payload of the entry in a file, which must be that of `key` and of somebody who is trusted."""
    place = path.resolve()
    # Not to wait for ever where a pipe was put in its place.
    with os.fdopen(os.open(place, os.O_RDONLY | _NOT_WAITING), "rb") as file:
        found = trust.opened_problem(place, file.fileno())
        if found is not None:
            raise BadEntry(f"{found}, and what it holds would be run. See docs/security.md")
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise BadEntry(f"it is larger than {LARGEST} bytes")
    header, payload = unpack(data)
    if header.get("key") != key:
        raise BadEntry(f"it belongs to another program ({header.get('name')})")
    return header, payload


def make_folder(folder: Path) -> None:
    """Make a folder that only its owner can write, whatever the user's habit (umask) is."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o755, exist_ok=True)


def write(path: Path, data: bytes) -> None:
    """Write a file so that others see all of it or nothing."""
    make_folder(path.parent)
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
