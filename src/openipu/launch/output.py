"""What instances print, line by line with the tag of their instance, and the last lines of each."""

import collections
import re
import sys
from typing import TextIO

# A line that Gloo writes once a device when it connects, piece by piece: it is not the program's. Two devices of a
# process write at the same time, so that pieces of both come in any order, and their ends of lines at last.
_GLOO = "[Gloo] Rank "
_PIECES = re.compile(
    r"(?:\[Gloo\] Rank |\d+| is connected to | peer ranks\. |Expected number of connected peer ranks is : )*"
)

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
        self._owed: collections.Counter[tuple[int, str]] = collections.Counter()

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
        if not self._verbose and self._of_gloo(instance, stream, text):
            return
        if stream == "stderr":
            self._errors.setdefault(instance, collections.deque(maxlen=_LAST)).append(text)
        if self.shows(instance):
            target: TextIO = sys.stdout if stream == "stdout" else sys.stderr
            print(f"[1,{instance}]<{stream}>:{text}", file=target, flush=True)

    def _of_gloo(self, instance: int, stream: str, text: str) -> bool:
        """Whether a line has nothing but pieces of what Gloo says, of messages that have begun."""
        begun = self._owed[instance, stream] + text.count(_GLOO)
        if not begun or not _PIECES.fullmatch(text):
            return False
        self._owed[instance, stream] = begun - 1
        return True
