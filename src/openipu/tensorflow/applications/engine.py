"""A started application: calls of many threads become executions of its program."""

import logging
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from openipu.compiler import cache_file, restore
from openipu.program import Plan, Program, Slot
from openipu.runtime import DeviceEngine, Resident
from openipu.tensorflow.applications.file import Application, Signature
from openipu.tensorflow.configuration import devices

log = logging.getLogger("openipu.tensorflow")

Arrays = list[np.ndarray]


class ApplicationEngine:
    """Runs an application.

    One execution takes the elements of several calls, if its program is a loop or a pipeline. It starts when there are
    enough of them, or when the first has waited for `timeout`: then the others are zeros.

    Args:
      application: from a file.
      values: of the variables that are not frozen, in their order.
      arguments: of the function, where calls give the elements of infeeds.
      ordinal: of the device.
      timeout: in microseconds.
    """

    def __init__(
        self, application: Application, values: Sequence[np.ndarray], arguments: Arrays, ordinal: int, timeout: int
    ) -> None:
        record = application.record
        self.record = record
        self._timeout = timeout / 1e6
        self._arguments = arguments
        self._ordinal = ordinal
        program = Program(
            name=record.name,
            shared=_slots(record.shared),
            local=_slots(record.local),
            batch=(*_slots(record.arguments), *_slots(record.infeeds, record.steps)),
            step=_gone,
            needs_key=record.draws,
        )
        plan = Plan(replicas=record.replicas)
        try:
            executable = restore(program, plan, application.executable)
        except cache_file.BadEntry as error:
            raise RuntimeError(
                f"The application {record.name!r} cannot be started: {error}. Compile it again on this machine."
            ) from None
        residents = [_resident(value, s) for value, s in zip(values, record.variables, strict=True)]
        shared = len(record.shared)
        self._engine = DeviceEngine(executable, residents[:shared], residents[shared:])
        self._layout = plan.layout
        self._requests: queue.SimpleQueue[tuple[Arrays, Future]] = queue.SimpleQueue()
        self.start_output: Arrays = []
        self._capacity = 1 if record.steps is None else record.steps * record.replicas
        threading.Thread(target=self._serve, name=f"openipu-{record.name}", daemon=True).start()

    @property
    def inputs(self) -> tuple[Signature, ...]:
        """What a call takes: an element of the infeeds, or the arguments of a function without them."""
        return self.record.arguments if self.record.steps is None else self.record.infeeds

    @property
    def outputs(self) -> tuple[Signature, ...]:
        """What a call gives: an element of the outfeeds, or the results of a function without infeeds."""
        if self.record.steps is None:
            return (*self.record.results, *self.record.outfeeds)
        return self.record.outfeeds

    def call(self, inputs: Arrays) -> Arrays:
        """The outputs for one element; waits for the execution that has it."""
        answer: Future = Future()
        self._requests.put((inputs, answer))
        return answer.result()

    def _serve(self) -> None:
        while True:
            requests = [self._requests.get()]
            until = time.monotonic() + self._timeout
            while len(requests) < self._capacity:
                try:
                    requests.append(self._requests.get(timeout=max(0.0, until - time.monotonic())))
                except queue.Empty:
                    break
            try:
                outputs = self._execute([inputs for inputs, _ in requests])
            except BaseException as error:  # Whoever called is told, and the thread lives on.
                for _, answer in requests:
                    answer.set_exception(error)
                continue
            for (_, answer), output in zip(requests, outputs, strict=False):
                answer.set_result(output)

    def _execute(self, requests: list[Arrays]) -> list[Arrays]:
        devices.require_attached(self._ordinal)
        record, layout = self.record, self._layout
        arguments = self._arguments if record.steps is not None else requests[0]
        feeds = [np.broadcast_to(a, layout.shape(a.shape, 1)) for a in arguments]
        if record.steps is not None:
            feeds += [self._block([request[i] for request in requests], s) for i, s in enumerate(record.infeeds)]
        seeds = devices.next_seeds(self._ordinal, record.replicas)
        results = self._engine.run(self._engine.place(feeds), seeds)
        outputs = [np.asarray(output[0]) for output in results.outputs]
        own, sent = outputs[: len(record.results)], outputs[len(record.results) :]
        own = [np.asarray(layout.first(o)) for o in own]
        if record.steps is None:
            return [[*own, *(np.asarray(layout.first(o)) for o in sent)]]
        self.start_output = own
        # [replica, step, ...] or [step, ...] -> one for each call, the replicas of a step in turn.
        lanes = [o if record.replicas > 1 else o[None] for o in sent]
        return [[lane[i % record.replicas, i // record.replicas] for lane in lanes] for i in range(len(requests))]

    def _block(self, parts: Arrays, signature: Signature) -> np.ndarray:
        """The elements of one execution, missing ones as zeros, with the axes of feeds."""
        block = np.zeros((self._capacity, *signature.shape), signature.dtype)
        block[: len(parts)] = parts
        spread = block.reshape(-1, self.record.replicas, *signature.shape)
        return spread[:, 0][None] if self.record.replicas == 1 else np.swapaxes(spread, 0, 1)[None]


def _slots(signatures: Sequence[Signature], steps: int | None = None) -> tuple[Slot, ...]:
    axes = () if steps is None else (steps,)
    return tuple(Slot(s.name, (*axes, *s.shape), np.dtype(s.dtype)) for s in signatures)


def _resident(value: np.ndarray, signature: Signature) -> Resident:
    dtype = np.dtype(signature.dtype)
    # NumPy's files know the types of extensions by their size only.
    held = [value.view(dtype) if value.dtype.kind == "V" else np.asarray(value, dtype)]

    def write(new: np.ndarray) -> None:
        held[0] = new

    return Resident(read=lambda: held[0], write=write)


def _gone(*args: Any) -> Any:
    raise AssertionError("the function of a compiled application is not there to be traced")
