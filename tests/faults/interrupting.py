"""Real signals at random moments of a training: afterwards the state is one that some execution has left."""

import signal
import sys
import threading

import numpy as np

from openipu.runtime import turns

_LOCKS = ("_compilation", "_execution", "VALUES")

TRIES, LONGEST, MOST = 12, 0.25, 400


class Injected(BaseException):
    """Raised where a signal might have been."""


def injected_at(line, action, files):
    """Whether `action` was stopped by an exception at this how manieth line of these files, if it gets so far."""
    seen = 0

    def trace(frame, event, argument):
        nonlocal seen
        if not frame.f_code.co_filename.endswith(files):
            return None
        if event == "line":
            seen += 1
            if seen == line:
                raise Injected
        return trace

    before, locks = sys.gettrace(), {name: getattr(turns, name) for name in _LOCKS}
    for name in _LOCKS:
        # Unlike a signal, this may come between the last line of a `with` and its end, and leave a lock taken.
        setattr(turns, name, threading.RLock())
    sys.settrace(trace)
    try:
        action()
    except Injected:
        return True
    finally:
        sys.settrace(before)
        for name, lock in locks.items():
            setattr(turns, name, lock)
    return False


class Lost(AssertionError):
    """A state that is neither the one before an execution nor the one after it."""


def interrupted(action, seconds):
    """Whether `action` was interrupted: a signal does what Ctrl-C's does after so many seconds, wherever it is then.

    Where a library in C++ is called back, what comes out of it may be another exception.
    """
    came = False

    def stop(*_):
        nonlocal came
        came = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
        action()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except BaseException:
        if not came:
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return came


def check(train, state, put, draw, described, tries=TRIES, longest=LONGEST):
    """Interrupt trainings; every state afterwards must be one of those that whole executions leave.

    Args:
      train: runs so many executions, each the same function of the state.
      state: all values, in a fixed order.
      put: sets them.
      draw: random numbers.
      described: what is trained.
      tries: how many interrupts.
      longest: seconds after which one comes at the latest.

    Returns:
      After how many executions each interrupt left the values.
    """
    start = state()
    known = [_key(start)]

    def trajectory(count):
        nonlocal last
        put(last)
        while len(known) <= count:
            train(1)
            last = state()
            known.append(_key(last))

    last = start
    trajectory(3)
    met = []
    # On a slow machine all interrupts may come before the second execution: then there are more, later ones.
    while len(met) < tries or (max(met) <= 1 and longest < 100 * LONGEST):
        longest = longest if len(met) < tries else 2 * longest
        put(start)
        came = interrupted(lambda: train(MOST), draw.uniform(0.0, longest))
        found = _key(state())
        while found not in known and len(known) <= MOST:
            trajectory(len(known) + 20)
        if found not in known:
            raise Lost(f"after an interrupt (it came: {came}) the values are those of no execution: {described}")
        at = known.index(found)
        met.append(at)
        # It goes on from there.
        train(1)
        trajectory(at + 1)
        put(start)
    return met


def _key(values):
    return b"".join(np.ascontiguousarray(v).tobytes() for v in values)


def equal(one, other):
    """Whether two states are the same, value by value."""
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
