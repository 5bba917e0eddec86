"""Variables that decide what is printed: log levels, log destinations, progress."""

import os

from openipu.environment.variable import declare, integer

TALK = "What is printed"

LEVELS = ("debug", "info", "warning", "error", "off")
QUIET = "3"  # Only what is fatal: without a GPU, even its absence is an error to them.
POPLAR_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF")

_log = declare(
    "OPENIPU_LOG",
    TALK,
    "How much the loggers `openipu.*` say; goes before the log levels below.",
    "warning",
    LEVELS,
)
_vlog = declare(
    "TF_POPLAR_VLOG_LEVEL",
    TALK,
    "The same for the original's TensorFlow: 0 warnings, 1 information too, 2 and more everything.",
    "0",
    values="a number from 0",
)
_poplar = declare(
    "POPLAR_LOG_LEVEL",
    TALK,
    "The same; of several levels the most talkative counts.",
    "WARN",
    POPLAR_LEVELS,
)
_poptorch = declare(
    "POPTORCH_LOG_LEVEL",
    TALK,
    "The same, and how much the logger `poptorch::python` says.",
    "WARN",
    # Not `valid`: poptorch's logger refuses others in the words of the original.
    values="`TRACE`, `TRACE_ALL`, `DEBUG`, `DEBUG_IR`, `INFO`, `WARN`, `ERR`, `OFF`",
)
_poplar_destination = declare(
    "POPLAR_LOG_DEST",
    TALK,
    "Where the loggers `openipu.*` write.",
    "stderr",
    values="`stderr`, `stdout` or a file",
)
_poptorch_destination = declare(
    "POPTORCH_LOG_DEST",
    TALK,
    "Where the logger `poptorch::python` writes.",
    "stderr",
    values="`stderr`, `stdout` or a file",
)
_progress = declare(
    "OPENIPU_PROGRESS",
    TALK,
    "Whether compilation shows its progress; `auto` means on a terminal, `on` also in files and pipes.",
    "auto",
    ("auto", "on", "off"),
)
_tensorflow = declare(
    "TF_CPP_MIN_LOG_LEVEL",
    TALK,
    "TensorFlow's and JAX's own: what their C++ libraries print. A program that imports `ipu` or `poptorch` gets 3 "
    "unless it, `TF_CPP_MIN_VLOG_LEVEL` or `TF_CPP_VMODULE` is set.",
    values="0 (everything) to 3 (only what is fatal)",
)


def log_level() -> str:
    """OPENIPU_LOG, else the most talkative of the original's variables that are set.

    Returns:
      One of `LEVELS`; empty if nothing is set, so that Python's own rules hold (warnings, or what the program says).
    """
    if _log.is_given():
        return _log.read()
    asked = []
    verbosity = integer(_vlog.name, 0)
    if verbosity > 0:
        asked.append("info" if verbosity == 1 else "debug")
    names: dict[str, str] = dict(zip(POPLAR_LEVELS, ("debug", *LEVELS), strict=True))
    if _poplar.is_given():
        asked.append(names[_poplar.read()])
    if _poptorch.is_given():
        asked.append(names.get(_poptorch.read().partition("_")[0], _log.default))
    return min(asked, key=LEVELS.index, default="")


def log_destination() -> str:
    """Where openipu's loggers write (POPLAR_LOG_DEST): `stderr`, `stdout` or a file."""
    return _poplar_destination.read()


def poptorch_log_level() -> str:
    """How much the poptorch logger says at the start (POPTORCH_LOG_LEVEL); the logger checks the value."""
    return _poptorch.read()


def poptorch_log_destination() -> str:
    """Where the poptorch logger writes (POPTORCH_LOG_DEST): `stderr`, `stdout` or a file."""
    return _poptorch_destination.read()


def progress() -> str:
    """Whether compilation shows its progress (OPENIPU_PROGRESS): `auto`, `on` or `off`."""
    return _progress.read()


def quiet_libraries() -> bool:
    """Hides what TensorFlow's and XLA's C++ libraries print, unless the user has said how much they should.

    They read the variable when they are loaded, so this comes before `import tensorflow` and `import jax`.

    Returns:
      Whether they are to be quiet.
    """
    if any(os.environ.get(name) for name in ("TF_CPP_MIN_VLOG_LEVEL", "TF_CPP_VMODULE")):
        return False
    return os.environ.setdefault(_tensorflow.name, QUIET) == QUIET
