"""The directory in which the user's processes tell each other which virtual IPUs they hold."""

import os
import stat
import warnings
from pathlib import Path

from openipu import environment


class RegistryError(RuntimeError):
    """The record of who holds which IPUs cannot be read or written."""


def registry_directory() -> Path:
    """Where the registry is (OPENIPU_RUNTIME_DIR, or else the user's runtime directory); it need not exist."""
    chosen = environment.runtime_dir()
    if chosen:
        return Path(chosen).expanduser().absolute()
    import platformdirs

    with warnings.catch_warnings():
        # Without a login session there is no XDG_RUNTIME_DIR; a private directory for temporary files does as well.
        warnings.simplefilter("ignore")
        try:
            return Path(platformdirs.user_runtime_dir("openipu", appauthor=False))
        except PermissionError as error:
            raise RegistryError(f"The user's runtime directory cannot be trusted: {error}. {_ADVICE}") from error


def make_private(path: Path) -> None:
    """Makes the directory if it is missing, and sees to it that only this user can use it."""
    try:
        # One by one: the mode is that of the last directory only.
        for part in (path.parent, path):
            part.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RegistryError(
            f"The directory {path}, which records who holds which IPUs, cannot be made: {error}. {_ADVICE}"
        ) from error
    check_private(path)


def check_private(path: Path) -> None:
    """Refuses a directory that another user could have prepared; closes one that is open to others."""
    if not hasattr(os, "getuid"):
        return
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise RegistryError(f"{path}, which records who holds which IPUs, must be a directory. {_ADVICE}")
    if found.st_uid != os.getuid():
        raise RegistryError(
            f"The directory {path}, which records who holds which IPUs, must belong to the user with the id "
            f"{os.getuid()}. It belongs to {found.st_uid}. {_ADVICE}"
        )
    if found.st_mode & 0o077:
        path.chmod(0o700)


_ADVICE = "Set OPENIPU_RUNTIME_DIR to a directory of your own."
