"""Variables of speed: native kernels, and what is computed at once."""

import contextlib
import os
from collections.abc import Iterator

from openipu.environment.variable import declare

NATIVE = "Speed"

_native = declare(
    "OPENIPU_NATIVE",
    NATIVE,
    "Whether programs use the native kernels: where they can be had, never, or always (it is an error if they cannot "
    "be had). `openipu doctor` shows what is used.",
    "auto",
    ("auto", "on", "off"),
)
_onednn = declare(
    "OPENIPU_ONEDNN",
    NATIVE,
    "The only place where oneDNN is looked for.",
    values="a directory with `include` and `lib`; unset for the newest one of this machine",
)
_conda = declare(
    "CONDA_PREFIX", NATIVE, "Conda's own: its active environment, where oneDNN is looked for.", values="a directory"
)
_compiler = declare(
    "CXX", NATIVE, "The C++ compiler that makes the native kernels.", values="a command; unset for `g++` and the like"
)
_wait = declare(
    "OMP_WAIT_POLICY",
    NATIVE,
    "OpenMP's own: how its idle threads wait. The native kernels' are passive unless it is set: XLA needs the cores.",
    values="`active` or `passive`",
)

_fold = declare(
    "OPENIPU_FOLD",
    NATIVE,
    "Whether micro-batches that see the same weights are computed at once, as one larger batch, where that changes no "
    "number, or always one after the other.",
    "auto",
    ("auto", "off"),
)


def fold() -> bool:
    """Whether micro-batches may be computed at once (OPENIPU_FOLD)."""
    return _fold.read() == "auto"


def native() -> str:
    """Whether native kernels are used (OPENIPU_NATIVE): `auto`, `on` or `off`."""
    return _native.read()


def onednn_prefix() -> str:
    """The only prefix in which oneDNN is looked for (OPENIPU_ONEDNN); empty for the usual ones."""
    return _onednn.read()


def conda_prefix() -> str:
    """The active conda environment (CONDA_PREFIX); empty for none."""
    return _conda.read()


def cxx() -> str:
    """The C++ compiler's command (CXX); empty for the machine's own."""
    return _compiler.read()


@contextlib.contextmanager
def passive_openmp() -> Iterator[None]:
    """What is loaded inside has OpenMP threads that sleep while they wait, unless the user has said how they wait."""
    if _wait.is_given():
        yield
        return
    os.environ[_wait.name] = "passive"
    try:
        yield
    finally:
        # Other libraries bring an OpenMP of their own; how that waits is not ours to say.
        del os.environ[_wait.name]
