"""The library of native kernels: found or made once for each machine, loaded once in each process."""

import ctypes
import functools
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import attrs
import filelock
import jax

from openipu import environment
from openipu.compiler import trust
from openipu.compiler.native import build, onednn, targets

log = logging.getLogger("openipu.native")

# What keeps somebody waiting longer than this is worth a line.
_PATIENCE = 2.0


class Unavailable(Exception):
    """There are no native kernels here; the text says why."""


@attrs.frozen
class Library:
    """Kernels that XLA programs can call.

    Attributes:
      description: what they are made of.
      path: the file.
      fingerprint: of the kernels and of what they were compiled with.
      handle: the loaded library.
    """

    description: str
    path: Path
    fingerprint: str
    handle: ctypes.CDLL = attrs.field(repr=False, eq=False)

    @property
    def identity(self) -> str:
        """What an executable that calls these kernels depends on."""
        return f"{self.description} {self.fingerprint}"


def library() -> Library | None:
    """The kernels as OPENIPU_NATIVE wants them; None where programs have to do without."""
    wish = environment.native()
    if wish == "off":
        return None
    found = _found()
    if isinstance(found, Library):
        return found
    if wish == "on":
        raise RuntimeError(
            f"OPENIPU_NATIVE=on, but there are no native kernels: {found}. Repair that, or unset OPENIPU_NATIVE."
        )
    return None


def why_not() -> str:
    """Why there are no native kernels; empty if there are."""
    if environment.native() == "off":
        return "OPENIPU_NATIVE=off"
    found = _found()
    return "" if isinstance(found, Library) else found


@functools.cache
def _found() -> Library | str:
    try:
        loaded = _load()
    except Unavailable as error:
        log.info("No native kernels: %s.", error)
        return str(error)
    log.info("Native kernels: %s, %s.", loaded.description, loaded.path)
    return loaded


def _load() -> Library:
    if not sys.platform.startswith("linux"):
        raise Unavailable("they are made for Linux")
    found = onednn.find(environment.onednn_prefix(), environment.conda_prefix())
    if found is None:
        raise Unavailable("there is no oneDNN; install it with `pip install 'openipu[native]'`")
    fingerprint = build.fingerprint(metadata.version("jaxlib"), f"oneDNN {found.version}")
    path = _installed(fingerprint) or _compiled(fingerprint, found)
    # Bound to their own OpenMP, even if another library of this process has one for everybody.
    mode = os.RTLD_LOCAL | os.RTLD_NOW | os.RTLD_DEEPBIND
    try:
        with environment.passive_openmp():
            ctypes.CDLL(str(found.library), mode)
            handle = ctypes.CDLL(str(path), mode)
    except OSError as error:
        raise Unavailable(f"they cannot be loaded: {error}") from error
    if not handle.openipu_native_uses_openmp():
        raise Unavailable(f"{found.library} does not use OpenMP")
    for target in targets.NAMES:
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(handle, target)), platform="cpu")
    describe = handle.openipu_native_description
    describe.restype = ctypes.c_char_p
    return Library(describe().decode(), path, fingerprint, handle)


def _installed(fingerprint: str) -> Path | None:
    """The library that was compiled when the package was installed."""
    path = build.installed(fingerprint)
    return path if path.is_file() else None


def _compiled(fingerprint: str, found: onednn.OneDNN) -> Path:
    """The library in the user's cache folder, compiled now if it is not there."""
    path = cache_folder() / f"{fingerprint}.so"
    if _is_ours(path):
        return path
    command = build.compiler(environment.cxx())
    if command is None or shutil.which(command[0]) is None:
        raise Unavailable("there is no C++ compiler, such as g++, to make them")
    if found.include is None:
        raise Unavailable(f"there are no headers for {found.library}; install `openipu[native]`")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with filelock.FileLock(path.with_suffix(".lock")):
            if not _is_ours(path):
                with _shown(f"Compiling native kernels with {command[0]}, once for this machine"):
                    build.build(path, command, [Path(jax.ffi.include_dir()), found.include], found.library)
    except build.CompilerError as error:
        raise Unavailable(f"the compiler failed: {error}") from error
    except OSError as error:
        raise Unavailable(f"{path.parent} cannot be used: {error}") from error
    return path


def cache_folder() -> Path:
    """Where libraries are kept that were compiled on first use."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("openipu", appauthor=False)) / "native"


def _is_ours(path: Path) -> bool:
    """Whether a file is there that this user wrote and nobody else could."""
    try:
        found = trust.problem(path.resolve(strict=True))
    except FileNotFoundError:
        return False
    if found is not None:
        raise Unavailable(f"{path} could have been written by another user: {found}")
    return True


@contextmanager
def _shown(what: str) -> Iterator[None]:
    """Says what takes so long, as soon as it does."""
    started = time.perf_counter()
    timer = threading.Timer(_PATIENCE, lambda: print(f"{what} …", file=sys.stderr, flush=True))
    timer.daemon = True
    if environment.progress() != "off" and sys.stderr is not None:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
    log.info("%s took %.1f s.", what, time.perf_counter() - started)
