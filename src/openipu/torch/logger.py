"""The logger of the poptorch namespace: its name, its format and its levels."""

import logging
import sys

from openipu import environment

NAME = "poptorch::python"

_LEVELS = {
    "TRACE": logging.DEBUG,
    "TRACE_ALL": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "DEBUG_IR": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "OFF": logging.CRITICAL,
}
_LEGACY = {0: "TRACE", 1: "DEBUG", 2: "INFO", 3: "WARN", 4: "ERR", 6: "OFF"}
_SHOWN = {"DEBUG": "debug", "INFO": "info", "WARNING": "warning", "ERROR": "error", "CRITICAL": "critical"}
_COLOURS = {"WARNING": "\033[33m\033[1m", "ERROR": "\033[31m\033[1m", "CRITICAL": "\033[1m\033[41m", "INFO": "\033[32m"}

logger = logging.getLogger(NAME)


class _Formatter(logging.Formatter):
    """`[HH:MM:SS.mmm] [poptorch::python] [level] message`, with a coloured level on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        clock = f"{self.formatTime(record, '%H:%M:%S')}.{int(record.msecs):03}"
        level = _SHOWN.get(record.levelname, record.levelname.lower())
        if sys.stderr.isatty():
            level = f"{_COLOURS.get(record.levelname, '')}{level}\033[0m"
        text = f"[{clock}] [{NAME}] [{level}] {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class _StandardError(logging.StreamHandler):
    """Writes to what `sys.stderr` is now: notebooks and tests replace it after the import."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def setLogLevel(level: str | int) -> None:
    """Sets how much poptorch says.

    Args:
      level: "TRACE", "DEBUG", "INFO", "WARN", "ERR" or "OFF"; or the older numbers 0, 1, 2, 3, 4 and 6.
    """
    if isinstance(level, int):
        if level not in _LEGACY:
            raise ValueError("Invalid log level integer")
        level = _LEGACY[level]
    if level not in _LEVELS:
        raise ValueError(f"Unknown log level: {level}. Valid values are DEBUG, ERR, INFO, OFF, TRACE and WARN")
    logger.setLevel(_LEVELS[level])


def install() -> None:
    """Gives the logger its handler and the level of POPTORCH_LOG_LEVEL; a second call changes nothing."""
    if any(isinstance(handler, _StandardError) for handler in logger.handlers):
        return
    handler = _StandardError()
    handler.setFormatter(_Formatter())
    logger.addHandler(handler)
    logger.propagate = False
    setLogLevel(environment.poptorch_log_level())


install()
