"""The record, shared by all processes of a user, of who holds which virtual IPUs: one locked file a partition."""

import contextlib
import json
import logging
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
import filelock

from openipu.hardware.directory import RegistryError, check_private, make_private, registry_directory
from openipu.hardware.processes import Identity, printable

FORMAT = 1
# Bytes of a record: each of hundreds of holders takes some hundred.
LARGEST = 2**24
# The greatest number that the record may have for anything.
_MOST = 2**31
# Whoever has the lock needs milliseconds; only a process that was stopped meanwhile can keep it for long.
LOCK_SECONDS = 20.0

logger = logging.getLogger(__name__)
_locks: dict[Path, filelock.BaseFileLock] = {}


def _numbers(values: Iterable[int]) -> tuple[int, ...]:
    numbers = tuple(values)
    if not all(type(number) is int and 0 <= number < _MOST for number in numbers):
        raise TypeError("IPUs are numbers")
    return numbers


_is, _from = attrs.validators.instance_of, attrs.validators.ge


def _moment(instance: object, attribute: attrs.Attribute, value: float) -> None:
    if not isinstance(value, (int, float)) or not abs(value) < 2.0**53:
        raise ValueError(f"{attribute.name} is no moment: {value!r}")


@attrs.frozen
class Holding:
    """A group of IPUs that a process holds.

    Args:
      pid, started: the process, see `Identity`.
      device: the id of the group.
      ipus: the IPUs in it.
      since: when it was attached, in seconds since 1970.
      command: what the process was started with.
      user: whose process it is.
    """

    pid: int = attrs.field(validator=[_is(int), _from(1), attrs.validators.lt(_MOST)])
    started: float = attrs.field(validator=_moment)
    device: int = attrs.field(validator=[_is(int), _from(0), attrs.validators.lt(_MOST)])
    ipus: tuple[int, ...] = attrs.field(converter=_numbers)
    since: float = attrs.field(validator=_moment)
    command: str = attrs.field(validator=_is(str))
    user: str = attrs.field(
        validator=_is(str), converter=lambda user: printable(user) if isinstance(user, str) else user
    )

    @property
    def holder(self) -> Identity:
        """The process that holds it."""
        return Identity(self.pid, self.started)


def read(partition: str) -> tuple[Holding, ...]:
    """What living processes hold; nothing if there is no registry yet.

    Needs no lock, because files are replaced as a whole.
    """
    directory = registry_directory()
    if not directory.is_dir():
        return ()
    check_private(directory)
    return _living(_load(directory / _file_name(partition)))


@contextlib.contextmanager
def locked(partition: str) -> Iterator[tuple[Holding, ...]]:
    """Keeps other processes from changing the partition; gives what living processes hold."""
    directory = registry_directory()
    make_private(directory)
    path = directory / _file_name(partition)
    with _locked_file(path.with_suffix(".lock")):
        yield _living(_load(path))


def write(partition: str, holdings: Iterable[Holding]) -> None:
    """Replaces the record of a partition; only while `locked`."""
    path = registry_directory() / _file_name(partition)
    content = {"format": FORMAT, "partition": partition, "holdings": [attrs.asdict(holding) for holding in holdings]}
    try:
        # Made with mode 0600, and renamed only when complete: readers see the old record or the new one.
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise RegistryError(f"Who holds which IPUs cannot be recorded in {path}: {error}.") from error


def partitions() -> list[str]:
    """The partitions that have a record, by name."""
    return sorted(path.stem for path in registry_directory().glob("[!.]*.json"))


def forget_locks() -> None:
    """For a forked child: the parent's locks are not its own."""
    _locks.clear()


@contextlib.contextmanager
def _locked_file(path: Path) -> Iterator[None]:
    # One object a file, so that a holder that is collected as garbage in here can be released in the same thread.
    lock = _locks.get(path) or _locks.setdefault(path, filelock.FileLock(path, mode=0o600, thread_local=False))
    try:
        lock.acquire(timeout=LOCK_SECONDS, poll_interval=0.002)
    except filelock.Timeout:
        raise RegistryError(
            f"The record of who holds which IPUs, {path}, was locked by another process for {LOCK_SECONDS:.0f} s. "
            "Look for a stopped process, or set OPENIPU_RUNTIME_DIR to another directory."
        ) from None
    except OSError as error:
        raise RegistryError(f"The record of who holds which IPUs cannot be locked: {error}.") from error
    try:
        yield
    finally:
        lock.release()


def _load(path: Path) -> tuple[Holding, ...]:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise ValueError(f"more than {LARGEST} letters")
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r} instead of {FORMAT}")
        return tuple(_valid(path, content["holdings"]))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise RegistryError(f"Who holds which IPUs cannot be read from {path}: {error}.") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        logger.warning(
            "%s does not say who holds which IPUs (%s): all are taken to be free, and the next program that attaches "
            "writes it anew.",
            path,
            error or type(error).__name__,
        )
        return ()


def _valid(path: Path, entries: Iterable[dict]) -> Iterator[Holding]:
    """What can be true of what is recorded: one bad entry does not free what others hold."""
    for entry in entries:
        try:
            yield Holding(**entry)
        except (ValueError, TypeError) as error:
            logger.warning("%s has a holder that cannot be (%s): it is left out.", path, printable(str(error)))


def _living(holdings: Iterable[Holding]) -> tuple[Holding, ...]:
    found = tuple(holdings)
    alive = {holder: holder.alive() for holder in {holding.holder for holding in found}}
    return tuple(holding for holding in found if alive[holding.holder])


def _file_name(partition: str) -> str:
    return re.sub(r"[^\w-]", "_", partition) + ".json"
