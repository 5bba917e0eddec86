"""Several pieces of data in one file, with a record of what they are and a hash of each."""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openipu.compiler import cache_file

_RECORD = "record.json"


def write(path: Path, record: Mapping[str, Any], members: Mapping[str, bytes]) -> None:
    """Write a file as a whole; `record` is what JSON can hold."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(_RECORD, json.dumps({**record, "hashes": _hashes(members)}))
        for name, data in members.items():
            archive.writestr(name, data)
    cache_file.write(path, buffer.getvalue())


def read(filename: str | os.PathLike) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Record and members of a file; refused unless every member is as it was written.

    Raises:
      FileNotFoundError: there is none.
      ValueError: it is no such file, or was changed.
    """
    try:
        refuse_growing(filename)
        with zipfile.ZipFile(filename) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        record = json.loads(members.pop(_RECORD))
        hashes = record.pop("hashes")
    except (zipfile.BadZipFile, KeyError, AttributeError) as error:
        raise ValueError(str(error)) from error
    if hashes != _hashes(members):
        raise ValueError("its hashes do not match, it was changed")
    return record, members


def refuse_growing(file: str | os.PathLike | io.BytesIO) -> None:
    """Refuse an archive that would grow when it is read; what we write is stored as it is."""
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
                raise ValueError(f"{member.filename!r} in it is compressed")


def _hashes(members: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
