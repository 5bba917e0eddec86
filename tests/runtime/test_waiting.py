"""Executions that wait for the host can be interrupted, and signals wait where an exception would do harm."""

import os
import signal
import threading

import pytest

from openipu.runtime import held, stoppable
from openipu.runtime.waiting import wait_for


def interrupt_when(event):
    def act():
        event.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=act).start()


def test_a_call_runs_in_this_thread_unless_it_may_be_stopped():
    assert wait_for(threading.current_thread) is threading.current_thread()
    with stoppable(lambda: None):
        assert wait_for(threading.current_thread) is not threading.current_thread()
        with pytest.raises(ZeroDivisionError):
            wait_for(lambda: 1 // 0)
    assert wait_for(threading.current_thread) is threading.current_thread()


def test_a_call_has_ended_when_its_interrupt_is_raised():
    waits, stopped, ended = threading.Event(), threading.Event(), threading.Event()

    def call():
        waits.set()
        assert stopped.wait(60)
        ended.set()

    interrupt_when(waits)
    with stoppable(stopped.set), pytest.raises(KeyboardInterrupt):
        wait_for(call)
    assert ended.is_set()


def test_a_signal_waits_until_the_end():
    before, inside = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), held():
        signal.raise_signal(signal.SIGINT)
        inside.append("still here")
        with held():
            signal.raise_signal(signal.SIGINT)
        inside.append("here too")
    assert inside == ["still here", "here too"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_is_not_hidden_and_handlers_come_back():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), held():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_hold_nothing():
    failed = []

    def act():
        with held():
            failed.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=act)
    thread.start()
    thread.join(60)
    assert failed == [before]
