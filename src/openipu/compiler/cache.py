"""A folder of compiled executables: looked up before XLA is asked, shared by processes, never trusted blindly."""

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import filelock

from openipu import environment
from openipu.compiler import cache_file
from openipu.hardware.directory import make_private, registry_directory

log = logging.getLogger("openipu.cache")

# What the original calls its files: TensorFlow's, and PopTorch's.
TENSORFLOW, POPTORCH = ".poplar_exec", ".popef"
_WAITED = 2.0
_ABANDONED = 3600.0


@attrs.frozen
class Cache:
    """Executables in a folder.

    Attributes:
      folder: where they are; it is made when the first one is stored.
      suffix: of their files.
    """

    folder: Path = attrs.field(converter=lambda path: Path(path).expanduser())
    suffix: str = TENSORFLOW

    def path(self, key: str) -> Path:
        """The file of a key."""
        return self.folder / f"{key}{self.suffix}"

    def load(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """Header and bytes of an executable, or None; a file that cannot be used is a warning."""
        path = self.path(key)
        try:
            found = cache_file.read(path, key)
            with contextlib.suppress(OSError):  # A folder that somebody shares may be read-only.
                os.utime(path)  # Pruning keeps what was used lately.
        except FileNotFoundError:
            return None
        except (cache_file.BadEntry, OSError, RuntimeError) as error:
            # RuntimeError: links that lead in a circle.
            log.warning("The cached executable %s cannot be used: %s. It is compiled again.", path, error)
            return None
        return found

    def store(self, key: str, header: dict[str, Any], payload: bytes) -> Path | None:
        """Keep an executable; a folder that cannot be written is a warning.

        Returns:
          Its file.
        """
        path = self.path(key)
        try:
            cache_file.write(path, cache_file.pack({**header, "key": key, "created": time.time()}, payload))
        except OSError as error:
            log.warning("The executable cannot be kept in the cache %s: %s.", self.folder, error)
            return None
        return path

    def stamp(self, key: str) -> tuple[int, int] | None:
        """What changes whenever an entry is written; None when there is none."""
        try:
            status = self.path(key).stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Hold the right to compile a key: of several processes that need it, one compiles and the others wait."""
        # Locks are kept out of the folder, which holds one file for every executable and nothing else.
        locks = registry_directory() / "locks"
        make_private(locks)
        name = hashlib.sha256(str(self.path(key).absolute()).encode()).hexdigest()
        lock = filelock.FileLock(locks / f"{name}.lock")
        # The system takes the lock away from a process that dies; one that is stopped could keep it for ever.
        limit = environment.cache_wait()
        try:
            lock.acquire(timeout=min(_WAITED, limit))
        except filelock.Timeout:
            log.warning(
                "Another process compiles the same program for the cache %s; waiting for it, for at most %.0f s.",
                self.folder,
                limit,
            )
            try:
                lock.acquire(timeout=max(limit - _WAITED, 0.0))
            except filelock.Timeout:
                log.warning("Waited %.0f s for the other process: the program is compiled here as well.", limit)
        try:
            yield
        finally:
            lock.release()


def entries(folder: Path) -> list[Path]:
    """The files of cached executables in a folder, those used last first."""
    found = [path for suffix in (TENSORFLOW, POPTORCH) for path in folder.glob(f"*{suffix}")]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def check(path: Path) -> dict[str, Any]:
    """The header of an entry that is whole and carries the key in its name; `cache_file.BadEntry` otherwise."""
    return cache_file.read(path, path.stem)[0]


def prune(folder: Path, largest: int | None = None, oldest: float | None = None) -> list[Path]:
    """Delete what was not used for `oldest` seconds, then the least recently used until the rest fits `largest` bytes.

    Returns:
      The deleted files.
    """
    deleted, total, now = [], 0, time.time()
    for path in folder.glob(".*.part"):  # Left by processes that were killed while they wrote.
        if now - path.stat().st_mtime > _ABANDONED:
            path.unlink(missing_ok=True)
    for path in entries(folder):
        status = path.stat()
        total += status.st_size
        if (oldest is not None and now - status.st_mtime > oldest) or (largest is not None and total > largest):
            path.unlink(missing_ok=True)
            total -= status.st_size
            deleted.append(path)
    return deleted
