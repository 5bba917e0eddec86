"""openipu's log: Python's loggers `openipu.*`, with the levels and places that the environment asks for."""

import logging
import sys

from openipu import environment

NAME = "openipu"

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
_COLOURS = {"WARNING": "\033[33m\033[1m", "ERROR": "\033[31m\033[1m", "CRITICAL": "\033[1m\033[41m", "INFO": "\033[32m"}


class Formatter(logging.Formatter):
    """`[HH:MM:SS.mmm] [logger] [level] message`, with a coloured level on a terminal."""

    def __init__(self, coloured: bool) -> None:
        super().__init__()
        self.coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        clock = f"{self.formatTime(record, '%H:%M:%S')}.{int(record.msecs):03}"
        level = record.levelname.lower()
        if self.coloured and sys.stderr.isatty():
            level = f"{_COLOURS.get(record.levelname, '')}{level}\033[0m"
        text = f"[{clock}] [{record.name}] [{level}] {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class StandardStream(logging.StreamHandler):
    """Writes to what `sys.stderr` or `sys.stdout` is now: notebooks and tests replace them after the import."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.stream_name = name

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = getattr(sys, self.stream_name)
        super().emit(record)


def handler(destination: str) -> logging.Handler:
    """A handler that writes openipu's lines.

    Args:
      destination: `stderr`, `stdout` or the path of a file.

    Returns:
      The handler; a file is opened with the first line, to be added to.
    """
    standard = destination in ("stderr", "stdout")
    made = StandardStream(destination) if standard else logging.FileHandler(destination, delay=True, encoding="utf-8")
    made.setFormatter(Formatter(coloured=destination == "stderr"))
    return made


def install() -> None:
    """Gives the logger `openipu` its handler and level; a second call changes nothing."""
    logger = logging.getLogger(NAME)
    if logger.handlers:
        return
    destination = environment.log_destination()
    made = handler(destination)
    if destination == "stderr":
        # A program that has set up logging gets our records through the root logger, and once is enough.
        made.addFilter(lambda record: not logging.getLogger().handlers)
    logger.addHandler(made)
    if level := environment.log_level():
        logger.setLevel(_LEVELS[level])
