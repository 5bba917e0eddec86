"""A value that has its home on the host and lives on the device between executions."""

import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Sharding

from openipu.program.replica import Layout
from openipu.runtime import turns
from openipu.runtime.placing import own, put

ALONE = Layout(1)

_away: "weakref.WeakSet[Resident]" = weakref.WeakSet()


class _OnDevice(NamedTuple):
    """A value on the device, how it is laid out there, and whether the host has not seen it yet.

    Of replicas that each have their own, the host gets the first one's; `first` has it where that is another process'.
    """

    value: jax.Array
    layout: Layout
    newer: bool
    first: jax.Array | None = None

    def for_host(self) -> np.ndarray:
        """What the host gets."""
        # An array first: choosing from one on the device would be a program of its own.
        return self.layout.first(np.asarray(own(self.value))) if self.first is None else np.asarray(own(self.first))


class Commit:
    """Makes the results of one execution true, all in the same moment: when `done` is set."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False


class _Staged(NamedTuple):
    """What a resident holds, and the how manieth value it is, once a commit is done."""

    commit: Commit
    held: _OnDevice
    version: int


class Resident:
    """One value with two places to be.

    The host's copy is true until an execution takes the value to the device. Then the device's is true until somebody
    asks for the host's: that brings the value home, and because whoever looks at it may also change it, the next
    execution takes it from the host again.

    Whatever interrupts a method or an execution (an exception may be raised by a signal between any two lines), the
    value is afterwards the one from before or the one from after it. Threads that look at values and threads that run
    executions do not meet in the middle of a change.
    """

    def __init__(self, read: Callable[[], np.ndarray], write: Callable[[np.ndarray], None]) -> None:
        self._read = read
        self._write = write
        self._held: _OnDevice | None = None
        self._version = 0
        self._next: _Staged | None = None

    @property
    def away(self) -> bool:
        """Whether the device holds the value."""
        return self._settled() is not None

    @property
    def version(self) -> int:
        """How many executions have given it a new value."""
        self._settled()
        return self._version

    @property
    def newer(self) -> bool:
        """Whether the device's value is one that the host has not seen."""
        held = self._settled()
        return held is not None and held.newer

    def take(self, sharding: Sharding, layout: Layout = ALONE, seed: int | None = None) -> jax.Array:
        """The value on the device, laid out for replicas that each have their own.

        Args:
          sharding: where it is wanted.
          layout: how the replicas' values lie there.
          seed: give every replica another value, because it seeds a random generator: the number, among all
            replicas, of the first one here. The first of all keeps the host's.
        """
        with turns.VALUES:
            held = self._settled()
            if held is not None and (held.layout is layout or held.layout == layout):
                placed = held.value.sharding
                # Those of an executable's results are the very objects it was compiled with.
                if placed is sharding or placed == sharding:
                    return held.value
            self.bring_home()
            host = np.asarray(self._read())
            host = layout.copies(host) if seed is None else layout.distinct_seeds(host, seed)
            # A copy: the host's buffer may be changed in place while the device still reads it.
            placed = put(np.array(host), sharding)
            self._held = _OnDevice(placed, layout, newer=False)
            return placed

    def bring_home(self) -> None:
        """Make the host's copy true again, and the only one; with replicas, that of the first one."""
        with turns.VALUES:
            self.refresh_host()
            self._held = None

    def refresh_host(self) -> None:
        """Make the host's copy equal to the device's, which stays the true one."""
        with turns.VALUES:
            held = self._settled()
            if held is not None and held.newer:
                self._write(held.for_host())
                self._held = _OnDevice(held.value, held.layout, False, held.first)
                self._is_home()

    def forget_device(self) -> None:
        """Let the next execution take the host's value; what only the device has is lost."""
        with turns.VALUES:
            self._settled()
            self._held = None
            self._is_home()

    def peek(self) -> np.ndarray:
        """The true value; nothing changes its place."""
        with turns.VALUES:
            held = self._settled()
            return np.asarray(self._read()) if held is None else held.for_host()

    def stage(self, commit: Commit, value: jax.Array, layout: Layout, first: jax.Array | None = None) -> None:
        """The value that is true once the commit is done; it stays on the device."""
        held = self._settled()
        if held is None or not held.newer:
            _away.add(self)
        self._next = _Staged(commit, _OnDevice(value, layout, True, first), self._version + 1)

    def value_of(self, commit: Commit) -> jax.Array | None:
        """What a commit that is done has made the value, if nobody has asked for it since."""
        staged = self._next
        return staged.held.value if staged is not None and staged.commit is commit else None

    def _settled(self) -> _OnDevice | None:
        """What the device holds, after what has been committed since the last look."""
        if self._next is None:
            return self._held
        with turns.VALUES:
            following = self._next
            if following is not None and following.commit.done:
                # Interrupted between any two lines, it is done again, with the same outcome.
                self._held, self._version = following.held, following.version
                self._next = None
            return self._held

    def _is_home(self) -> None:
        # Not when an execution is about to give it a new value.
        if self._next is None:
            _away.discard(self)


class New(NamedTuple):
    """A resident, its new value, how that is laid out, and what of it the host gets if that is another process'."""

    resident: Resident
    value: jax.Array
    layout: Layout = ALONE
    first: jax.Array | None = None


def stage(residents: Sequence[New]) -> Commit:
    """New values of an execution: what is returned makes them the true ones, all or (when it is never done) none."""
    commit = Commit()
    with turns.VALUES:
        for resident, value, layout, first in residents:
            resident.stage(commit, value, layout, first)
    return commit


def untouched(residents: Sequence[Resident], commit: Commit) -> list[jax.Array] | None:
    """The values that a commit made true, if nobody has asked for any of them since."""
    if not commit.done:
        return None
    with turns.VALUES:
        values = [resident.value_of(commit) for resident in residents]
    found = [value for value in values if value is not None]
    return found if len(found) == len(values) else None


def bring_all_home() -> None:
    """Bring every newer value home: for code that reads host values behind their owners' backs."""
    with turns.VALUES:
        waiting = list(_away)
    for resident in waiting:
        resident.bring_home()
