"""A dataset read ahead by another process, its items handed over in shared memory."""

import atexit
import contextlib
import copy
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import weakref
from multiprocessing import connection, forkserver, reduction
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

import torch

from openipu.torch.data import items, ring, worker
from openipu.torch.data.forking import Deferred, quiet_fork
from openipu.torch.enums import SharingStrategy
from openipu.torch.exceptions import Error
from openipu.torch.structures import registered_parsers

_START_METHODS = {
    SharingStrategy.SharedMemory: "spawn",
    SharingStrategy.FileSystem: "spawn",
    SharingStrategy.Fork: "fork",
    SharingStrategy.ForkServer: "forkserver",
}
_NOT_STARTED = "AsynchronousDataAccessor worker thread failed to start (Check above for details)"
_PATIENCE = 1.0  # seconds a worker may take to finish the item it is reading; somebody waits for the end
_HURRY = 2.0  # seconds it may take once it was told to leave at once

_alive: "weakref.WeakSet[AsynchronousDataAccessor]" = weakref.WeakSet()


class AsynchronousDataAccessor:
    """Iterates over a dataset that a process of its own reads ahead.

    What is returned are views of shared memory, overwritten when the next item is asked for: `clone()` what is kept.

    Args:
      dataset: an iterable of tensors or flat containers of them, or a `poptorch.DataLoader`.
      buffer_size: items that are held ready.
      miss_sleep_time_in_ms: accepted for compatibility; a program that waits is woken, it does not poll.
      load_indefinitely: whether the next epoch is read as soon as one has ended.
      early_preload: whether the buffer is filled before the first iteration.
      sharing_strategy: how the process is started and gets the dataset.
      rebatched_size: rows of the items after cutting them anew; None to leave them as they are.
    """

    def __init__(
        self,
        dataset: Any,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: int | None = None,
    ) -> None:
        self._process: BaseProcess | None = None
        assert isinstance(buffer_size, int) and buffer_size > 0, (
            f"buffer_size must be a positive integer. Received: {buffer_size!r}"
        )
        assert rebatched_size is None or rebatched_size > 1, (
            f"rebatched_size must be None or greater than 1. Received: {rebatched_size!r}"
        )
        keep_rest = _keeps_rest(dataset, rebatched_size)
        if isinstance(dataset, torch.utils.data.DataLoader):
            # The loader owns its accessor: a reference back would delay the end of both. The copy has no workers yet.
            dataset = copy.copy(dataset)
        self._dataset = dataset
        self._rebatched_size = rebatched_size
        self._epoch = -1  # the epoch being handed over
        self._between = True  # no epoch is under way
        self._begun = False  # an item of it was handed over
        self._held: int | None = None
        self._owner = os.getpid()
        recipe = worker.Recipe(
            dataset=Deferred(dataset),
            dataset_file=None,
            slots=buffer_size,
            load_indefinitely=load_indefinitely,
            early_preload=early_preload,
            rows=rebatched_size,
            keep_rest=keep_rest,
            parsers=registered_parsers(),
            seed=int(torch.empty((), dtype=torch.int64).random_().item()),
        )
        self._start(SharingStrategy(sharing_strategy), recipe)
        self._open_ring(buffer_size)

    def terminate(self) -> None:
        """Stops the worker; iterating is an error afterwards."""
        process = self._process
        # A forked child has copies of its parent's accessors, but no right to stop their workers.
        if process is None or self._owner != os.getpid():
            return
        self._process = None
        _alive.discard(self)
        with contextlib.suppress(OSError):
            self._pipe.send(("stop",))
        # Unread items would otherwise keep the worker waiting in a send.
        self._pipe.close()
        process.join(_PATIENCE)
        for stop in (signal.SIGTERM, signal.SIGKILL):
            if not process.is_alive():
                break
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid or 0, stop)
            process.join(_HURRY)
        with contextlib.suppress(ValueError):
            process.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.terminate()

    def __len__(self) -> int:
        length = len(self._dataset)
        if self._rebatched_size is None:
            return length
        return length * (getattr(self._dataset, "batch_size", None) or 1) // self._rebatched_size

    def __iter__(self) -> "AsynchronousDataAccessor":
        # An epoch that was begun and left is abandoned; one that is only prepared is the next.
        if self._between or self._begun:
            self._release()
            self._epoch += 1
            self._between = self._begun = False
            self._send(("begin", self._epoch))
        return self

    def __next__(self) -> Any:
        if self._epoch < 0:
            iter(self)
        if self._between:
            raise StopIteration
        self._release()
        while True:
            kind, *values = self._receive()
            if kind == "item":
                epoch, slot, rows = values
                if epoch < self._epoch:
                    self._send(("free", slot))
                    continue
                self._held, self._begun = slot, True
                tensors = self._slots[slot]
                return items.build(self._template, tensors if rows is None else [t[:rows] for t in tensors])
            if kind == "end" and values[0] == self._epoch:
                self._between = True
                raise StopIteration
            if kind == "error":
                self._fail(values[0])

    def _start(self, strategy: SharingStrategy, recipe: worker.Recipe) -> None:
        method = _START_METHODS[strategy]
        _leave_if_starting()
        context: Any = multiprocessing.get_context(method)
        if method == "forkserver":
            _preload_torch()
        self._pipe, theirs = context.Pipe()
        with contextlib.ExitStack() as stack:
            stack.callback(theirs.close)
            if strategy is SharingStrategy.FileSystem:
                recipe = _in_file(recipe, stack)
            unused = self._pipe if method == "fork" else None
            # Not a daemon: it may have to start the loader's own workers.
            process = context.Process(target=worker.run, args=(theirs, os.getpid(), recipe, unused), daemon=False)
            _stop_all_at_exit()
            try:
                with quiet_fork():
                    process.start()
            except (EOFError, ConnectionError):
                # The server that forks workers has gone, and said why.
                self._pipe.close()
                raise Error(_NOT_STARTED) from None
            except BaseException:
                self._pipe.close()
                raise
            self._process = process
            _alive.add(self)
            self._ready = self._first_answer()

    def _first_answer(self) -> tuple:
        try:
            answer = self._receive()
            if answer[0] != "ready":
                self._fail(answer[1])
        except AssertionError:
            raise Error(_NOT_STARTED) from None
        return answer

    def _open_ring(self, count: int) -> None:
        _, template, layout = self._ready
        descriptor = reduction.recv_handle(self._pipe)
        try:
            self._slots = ring.tensors_of(descriptor, layout, count)
        finally:
            os.close(descriptor)
        self._template = pickle.loads(template)

    def _release(self) -> None:
        if self._held is not None:
            self._send(("free", self._held))
            self._held = None

    def _send(self, message: tuple) -> None:
        if self._process is None:
            raise Error("The AsynchronousDataAccessor was terminated. Make a new one to iterate again.")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the next receive says what happened
            self._pipe.send(message)

    def _receive(self) -> tuple:
        if self._process is None:
            raise Error("The AsynchronousDataAccessor was terminated. Make a new one to iterate again.")
        while True:
            try:
                if self._pipe.poll(0):
                    return self._pipe.recv()
                connection.wait([self._pipe, self._process.sentinel], timeout=1.0)
                if self._pipe.poll(0):
                    return self._pipe.recv()
            except (EOFError, ConnectionResetError):
                self._fail()
            # The loader's own workers may outlive the worker for a moment and keep its end of the pipe open.
            if not self._process.is_alive() or not worker.exists(self._process.pid or 0):
                self._fail()

    def _fail(self, details: str = "") -> NoReturn:
        # Written here: a worker's own error stream is that of the server it was forked from.
        sys.stderr.write(details)
        self.terminate()
        raise AssertionError("An error occurred in the data fetcher")


def terminate_all() -> None:
    """Stops every worker of this process."""
    for accessor in list(_alive):
        accessor.terminate()


_registered = False


def _stop_all_at_exit() -> None:
    """Stops workers before multiprocessing's own exit handler waits for them: handlers run last in, first out."""
    global _registered
    if not _registered:
        atexit.register(terminate_all)
        _registered = True


def _leave_if_starting() -> None:
    """End a process that runs the program a second time only because it was started to read data for the first."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        sys.stderr.write(
            "openipu: a program that reads data asynchronously is imported again by the process that reads: put what "
            'it does behind `if __name__ == "__main__":`, or choose poptorch.SharingStrategy.Fork.\n'
        )
        sys.stderr.flush()
        os._exit(1)


def _preload_torch() -> None:
    """Lets workers be forked from a server that has imported torch, instead of importing it each."""
    server = forkserver._forkserver  # pyright: ignore[reportAttributeAccessIssue]
    # The user's own choice of modules, and a server that runs already, are left alone.
    if getattr(server, "_preload_modules", None) == ["__main__"] and getattr(server, "_forkserver_pid", 0) is None:
        multiprocessing.set_forkserver_preload(["__main__", worker.__name__])


def _in_file(recipe: worker.Recipe, stack: contextlib.ExitStack) -> worker.Recipe:
    """The recipe with its dataset in a file that exists until the worker has answered."""
    descriptor, path = tempfile.mkstemp(prefix="openipu-dataset-")
    stack.callback(os.unlink, path)
    with open(descriptor, "wb") as file:
        pickle.dump(recipe.dataset.value, file)
    return worker.in_file(recipe, path)


def _keeps_rest(dataset: Any, rebatched_size: int | None) -> bool:
    """Whether an incomplete item at the end is passed on: only where a loader says so."""
    keeps_rest = getattr(dataset, "_openipu_keeps_rest", None)
    return keeps_rest is not None and keeps_rest(rebatched_size)
