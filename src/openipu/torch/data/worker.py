"""The process that reads a dataset ahead of the program; it never loads JAX or TensorFlow."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from multiprocessing import connection, parent_process, reduction
from typing import Any

import attrs
import torch

from openipu.torch.data import items, ring
from openipu.torch.data.forking import Deferred
from openipu.torch.exceptions import Error
from openipu.torch.structures import registerCustomArgParser

# What the program sends: ("begin", epoch), ("free", slot), ("stop",).
# What the worker sends: ("ready", template, layout) followed by the ring's descriptor, ("item", epoch, slot, rows),
# ("end", epoch), ("error", traceback).


@attrs.frozen
class Recipe:
    """What a worker needs to know.

    Attributes:
      dataset: what to iterate over; empty when it is in a file.
      dataset_file: where a pickled dataset is.
      slots: items that are held ready.
      load_indefinitely: whether the next epoch is read as soon as one has ended.
      early_preload: whether reading starts before the program asks for an epoch.
      rows: rows of the items after cutting them anew; None to leave them as they are.
      keep_rest: whether an incomplete item at the end of an epoch is passed on.
      parsers: how the user's container types are handled.
      seed: of torch's random numbers, so that runs can be repeated.
    """

    dataset: Deferred
    dataset_file: str | None
    slots: int
    load_indefinitely: bool
    early_preload: bool
    rows: int | None
    keep_rest: bool
    parsers: dict
    seed: int


def in_file(recipe: Recipe, path: str) -> Recipe:
    """The same recipe with its dataset in a file."""
    return attrs.evolve(recipe, dataset=Deferred(None), dataset_file=path)


def run(pipe: connection.Connection, program: int, recipe: Recipe, unused: connection.Connection | None) -> None:
    """Serves items until the program says stop, or is gone.

    Args:
      pipe: the connection to the program.
      program: the program's process id.
      recipe: what to do.
      unused: the program's end of the connection, which a forked worker inherits: open here, the end of the program
        would go unnoticed.
    """
    if unused is not None:
        unused.close()
    # An interrupt from the keyboard reaches the whole group; the program decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_watch, args=(program,), daemon=True).start()
    if "fork" in multiprocessing.get_all_start_methods():
        # Inherited from how this process was started, the loader's own workers would each import torch again. Here no
        # thread computes, so that forking is safe.
        multiprocessing.set_start_method("fork", force=True)
    # The program's own computation needs the cores more.
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    for kind, parser in recipe.parsers.items():
        registerCustomArgParser(kind, parser)
    try:
        Producer(pipe, recipe).serve()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception:
        with contextlib.suppress(OSError):
            pipe.send(("error", traceback.format_exc()))


class Producer:
    """Reads items, puts them into free slots and says so."""

    def __init__(self, pipe: connection.Connection, recipe: Recipe) -> None:
        self.pipe = pipe
        self.recipe = recipe
        self.dataset = _dataset(recipe)
        self.epoch = 0
        self.free = list(range(recipe.slots))
        self.wanted = 0 if recipe.early_preload else -1  # the last epoch the program has asked for
        self.stopped = False

    def serve(self) -> None:
        """Runs epoch after epoch."""
        iterator = self._epoch()
        first = next(iterator, None)
        if first is None:
            raise Error("The Dataset is empty")
        self._open(first)
        self._pass_on(first)
        while not self.stopped:
            # Kept by this name: dropping the iterator of an abandoned epoch ends its workers.
            iterator = self._read(iterator)

    def _read(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """Reads on until the epoch ends or another one is wanted; returns the next epoch's iterator."""
        if not self._wait_for_room():
            return self._restart(iterator)
        for item in iterator:
            # What was asked for while the item was being read.
            self._receive_waiting()
            if self.stopped or self.wanted > self.epoch:
                return self._restart(iterator)
            self._pass_on(item)
            if not self._wait_for_room():
                return self._restart(iterator)
        self.pipe.send(("end", self.epoch))
        self.epoch += 1
        ahead = 1 if self.recipe.load_indefinitely else 0
        while not self.stopped and self.wanted < self.epoch - ahead:
            self._receive()
        return self._epoch() if not self.stopped else iterator

    def _restart(self, iterator: Iterator[Any]) -> Iterator[Any]:
        if self.stopped:
            return iterator
        self.epoch = self.wanted
        return self._epoch()

    def _wait_for_room(self) -> bool:
        """Waits for a free slot; False when this epoch is not wanted any more."""
        self._receive_waiting()
        while not self.stopped and self.wanted <= self.epoch and (not self.free or self.wanted < 0):
            self._receive()
        return not self.stopped and self.wanted <= self.epoch

    def _receive_waiting(self) -> None:
        while self.pipe.poll(0):
            self._receive()

    def _receive(self) -> None:
        kind, *value = self.pipe.recv()
        if kind == "free":
            self.free.append(value[0])
        elif kind == "begin":
            self.wanted = value[0]
        else:
            self.stopped = True

    def _epoch(self) -> Iterator[Any]:
        source: Iterable[Any] = self.dataset
        if self.recipe.rows is not None:
            source = items.rebatched(source, self.recipe.rows, self.recipe.keep_rest)
        return iter(source)

    def _open(self, first: Any) -> None:
        """Makes the ring, with the first item as the measure, and shares it."""
        layout = ring.layout_of(items.flat_tensors(first), self.recipe.rows)
        descriptor = ring.allocate(layout, self.recipe.slots)
        try:
            self.slots = ring.tensors_of(descriptor, layout, self.recipe.slots)
            self.layout = layout
            # Pickled here: sent as they are, tensors would be shared through named files.
            self.pipe.send(("ready", pickle.dumps(items.template_of(first)), layout))
            reduction.send_handle(self.pipe, descriptor, os.getppid())
        finally:
            os.close(descriptor)

    def _pass_on(self, item: Any) -> None:
        tensors = items.flat_tensors(item)
        rows = None if self.recipe.rows is None else tensors[0].shape[0]
        self._check(tensors, rows)
        slot = self.free.pop(0)
        for target, tensor in zip(self.slots[slot], tensors, strict=True):
            (target if rows is None else target[:rows]).copy_(tensor)
        self.pipe.send(("item", self.epoch, slot, rows))

    def _check(self, tensors: list[torch.Tensor], rows: int | None) -> None:
        shapes = tuple(tuple(t.shape) if rows is None else (self.recipe.rows, *t.shape[1:]) for t in tensors)
        dtypes = tuple(t.dtype for t in tensors)
        if (shapes, dtypes) != (self.layout.shapes, self.layout.dtypes):
            raise Error(
                "All items must have the shapes and types of the first one. Expected: "
                f"{self.layout.shapes}, {self.layout.dtypes}. Received: {shapes}, {dtypes}. "
                "Pad or crop the items, or drop the last incomplete batch."
            )


def _dataset(recipe: Recipe) -> Any:
    if recipe.dataset_file is None:
        try:
            return recipe.dataset.load()
        except AttributeError as error:
            error.add_note(
                "A dataset for another process must be importable there: define its class in a module, not in a "
                "notebook, or use sharing_strategy=poptorch.SharingStrategy.Fork in async_options."
            )
            raise
    with open(recipe.dataset_file, "rb") as file:
        return pickle.load(file)


def _leave(number: int, frame: Any) -> None:
    """Ends the process in the ordinary way, so that the loader's own workers are stopped."""
    raise SystemExit(1)


def _watch(program: int) -> None:
    """Ends this process when the program is gone while it hangs in the user's dataset."""
    parent = parent_process()
    while exists(program) and not (parent and connection.wait([parent.sentinel], timeout=1.0)):
        if parent is None:
            time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(2.0)
    os._exit(1)


def exists(process: int) -> bool:
    """Whether a process with this id runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
