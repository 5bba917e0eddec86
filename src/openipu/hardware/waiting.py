"""Waiting for IPUs that other processes hold, and saying so."""

import sys
from time import monotonic, sleep
from types import TracebackType
from typing import TYPE_CHECKING

import attrs

from openipu.errors import OutOfIpusError

if TYPE_CHECKING:
    from tqdm import tqdm

QUIET_SECONDS = 2.0
REMINDER_SECONDS = 60.0


@attrs.frozen
class Wait:
    """How to wait for busy IPUs.

    Args:
      poll: seconds between two attempts.
      timeout: seconds after which to give up; None for never.
    """

    poll: float = attrs.field(validator=attrs.validators.gt(0))
    timeout: float | None = None


class Patience:
    """One wait: sleeps between attempts, tells the user once it takes long, gives up in the end."""

    def __init__(self, wait: Wait) -> None:
        self._wait = wait
        self._begun = monotonic()
        self._said: float | None = None
        self._bar: tqdm | None = None

    def __enter__(self) -> "Patience":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        if self._said is not None and error is None:
            _say(f"The IPUs are free after {self._elapsed():.0f} s: attached.")

    def pause(self, reason: OutOfIpusError) -> None:
        """Sleeps until the next attempt; raises if the time is over.

        Args:
          reason: what the last attempt was refused with.
        """
        timeout = self._wait.timeout
        if timeout is not None and self._elapsed() >= timeout:
            raise OutOfIpusError(f"Waited {self._elapsed():.1f} s for IPUs in vain. {reason}")
        due = monotonic() + self._wait.poll
        if timeout is not None:
            due = min(due, self._begun + timeout)
        while (left := due - monotonic()) > 0:
            self._tell(reason)
            # In pieces, so that the user is told in time however seldom there is an attempt.
            sleep(min(left, 0.5))

    def _elapsed(self) -> float:
        return monotonic() - self._begun

    def _tell(self, reason: OutOfIpusError) -> None:
        elapsed = self._elapsed()
        if elapsed < QUIET_SECONDS:
            return
        if self._said is None:
            limit = "until they are free" if self._wait.timeout is None else f"for at most {self._wait.timeout:.0f} s"
            _say(f"Waiting {limit}; Ctrl-C stops. {reason}")
            self._said = elapsed
            self._bar = self._make_bar()
        if self._bar is not None and not self._bar.disable:
            self._bar.update(elapsed - self._bar.n)
        elif elapsed - self._said >= REMINDER_SECONDS:
            _say(f"Still waiting after {elapsed:.0f} s. {reason}")
            self._said = elapsed

    def _make_bar(self) -> "tqdm":
        from tqdm import tqdm

        total = self._wait.timeout
        shape = "{desc}: {elapsed}" if total is None else "{desc}: {bar} {elapsed} of at most {total:.0f} s"
        # disable=None: only on a terminal.
        bar = tqdm(total=total, desc="Waiting for IPUs", bar_format=shape, leave=False, disable=None)
        if not bar.disable:
            bar.start_t -= self._elapsed()
        return bar


def _say(text: str) -> None:
    print(f"openipu: {text}", file=sys.stderr, flush=True)
