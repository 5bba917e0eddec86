"""The logger of the poptorch namespace: its name, its format and its levels."""

import logging

from openipu import environment, logs

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

logger = logging.getLogger(NAME)


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
    logs.install()
    if logger.handlers:
        return
    logger.addHandler(logs.handler(environment.poptorch_log_destination()))
    logger.propagate = False
    setLogLevel(environment.poptorch_log_level())


install()
