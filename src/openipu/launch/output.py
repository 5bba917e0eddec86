"""What instances print, line by line with the tag of their instance, and the last lines of each."""

import collections
import re
import sys
from typing import TextIO

# A line that Gloo writes once a process when it connects; it is not the program's.
_GLOO = re.compile(r"\[Gloo\] Rank \d+ is connected to \d+ peer ranks")

# How much of an instance's errors is kept to be shown when it dies.
_LAST = 20


class Output:
    """The output of all instances.

    Args:
      only: the instance whose output is shown; None for all.
      verbose: also show what libraries say on the way.
    """

    def __init__(self, only: int | None = None, verbose: bool = False) -> None:
        self._only = only
        self._verbose = verbose
        self._rest: dict[tuple[int, str], bytes] = {}
        self._errors: dict[int, collections.deque[str]] = {}

    def add(self, instance: int, stream: str, data: bytes) -> None:
        """Print the lines that are complete now."""
        *lines, rest = (self._rest.get((instance, stream), b"") + data).split(b"\n")
        self._rest[instance, stream] = rest
        for line in lines:
            self._line(instance, stream, line)

    def finish(self, instance: int) -> None:
        """Print what an instance that has ended has left without an end of line."""
        for stream in ("stdout", "stderr"):
            rest = self._rest.pop((instance, stream), b"")
            if rest:
                self._line(instance, stream, rest)

    def last_errors(self, instance: int) -> list[str]:
        """The last lines of an instance's standard error."""
        return list(self._errors.get(instance, ()))

    def shows(self, instance: int) -> bool:
        """Whether the output of an instance is shown."""
        return self._only is None or self._only == instance

    def _line(self, instance: int, stream: str, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        if _GLOO.match(text) and not self._verbose:
            return
        if stream == "stderr":
            self._errors.setdefault(instance, collections.deque(maxlen=_LAST)).append(text)
        if self.shows(instance):
            target: TextIO = sys.stdout if stream == "stdout" else sys.stderr
            print(f"[1,{instance}]<{stream}>:{text}", file=target, flush=True)
