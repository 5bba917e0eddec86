"""Sessions that run programs: variables stay on the device until the session's own operations ask for them."""

import functools
import re
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from openipu.tensorflow import boundary
from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.v1.closure import Closure, closure, refuse_uncompiled
from openipu.tensorflow.v1.runner import Runner
from openipu.tensorflow.v1.values import Value, hand_over, take_back

_graphs: "weakref.WeakKeyDictionary[tf.Graph, GraphState]" = weakref.WeakKeyDictionary()


class GraphState:
    """The programs of one graph, and the variables that they share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._values: dict[str, Value] = {}
        self._programs: dict[str, Runner] = {}
        self._outputs: dict[Any, tuple[Runner, int | None]] = {}
        self._own: set[str] = set()
        self._closures: dict[tuple, Closure] = {}
        self._direct: dict[tuple, tuple[Runner, list[int]] | None] = {}

    def value(self, variable: Any) -> Value:
        """The value of a variable, the same for all programs."""
        name = variable.handle.op.name
        if name not in self._values:
            with tf.control_dependencies(None):
                self._values[name] = Value(variable)
            self._own.add(self._values[name].reading.op.name)
        return self._values[name]

    def add(
        self,
        runner: Runner,
        call: tf.Operation,
        results: Sequence[tf.Tensor] | tf.Operation,
        assigned: Sequence[tf.Operation],
    ) -> None:
        """A program of the graph.

        Args:
          runner: runs it.
          call: the operation that does so in the middle of the graph.
          results: what users fetch.
          assigned: the operations that give the session the new values.
        """
        self._programs[call.name] = runner
        self._own |= {call.name, *(op.name for op in assigned)}
        if tf.no_op("place_of_program").control_inputs:
            # It has to run after something: only the session knows how.
            return
        if isinstance(results, tf.Operation):
            self._outputs[results.name] = (runner, None)
            return
        for number, tensor in enumerate(results):
            self._outputs[tensor.ref()] = (runner, number)
            self._outputs[tensor.op.name] = (runner, None)

    def run(self, session: Any, call: Any) -> list[Any]:
        """A run of a session."""
        key = (tuple(map(id, call.targets)), tuple(map(id, call.fetches)))
        if key not in self._direct:
            self._direct[key] = self._directly(call)
        direct = self._direct[key]
        if direct is not None and call.is_plain:
            return self._run_program(session, call, *direct)
        return self._run_graph(session, call, key)

    def flush(self, session: Any = None) -> None:
        """Give sessions the values that only devices have, and let them be changed there."""
        with self.lock:
            values = [v for v in self._values.values() if session is None or v.belongs_to(session)]
            take_back(values, boundary.run_in_session)
            for value in values:
                value.forget()

    def _directly(self, call: Any) -> tuple[Runner, list[int]] | None:
        """The one program whose results are all that is fetched, and which of them; None if there is more to it."""
        found = [self._outputs.get(op.name) for op in call.targets]
        fetched = [self._outputs.get(tensor.ref()) for tensor in call.fetches]
        all_of_them = [*found, *fetched]
        if None in all_of_them or len({id(entry[0]) for entry in all_of_them if entry}) != 1:
            return None
        entries = [entry for entry in fetched if entry is not None]
        return all_of_them[0][0], [number for _, number in entries if number is not None]  # pyright: ignore

    def _run_program(self, session: Any, call: Any, runner: Runner, wanted: list[int]) -> list[Any]:
        """Past the session: it is asked for what it has to compute, and runs nothing else."""
        tensors = [tensor for tensor, _ in runner.computation.inputs]
        missing = [t for t in tensors if t.ref() not in call.feeds]
        computed = {}
        if missing:
            found = self._run_graph(session, call.other([], missing), (id(runner), *call.feeds))
            computed = {t.ref(): np.asarray(v) for t, v in zip(missing, found, strict=True)}
        inputs = [computed[t.ref()] if t.ref() in computed else call.feeds[t.ref()] for t in tensors]
        with self.lock:
            hand_over(runner.values, session, boundary.run_in_session)
            outputs = runner.run(inputs)
        return [outputs[number][()] for number in wanted]

    def _run_graph(self, session: Any, call: Any, key: tuple) -> list[Any]:
        """In the session, which has the values of all variables that it uses."""
        key = (*key, frozenset(call.feeds))
        if key not in self._closures:
            roots = [*call.targets, *(tensor.op for tensor in call.fetches)]
            fed = [reference.deref() for reference in call.feeds]
            refuse_uncompiled(roots, fed, session.graph)
            self._closures[key] = closure(roots, fed, self._programs, self._own)
        found = self._closures[key]
        used = [value for name, value in self._values.items() if name in found.used]
        if not used and not found.programs:
            return call.run()
        with self.lock:
            return self._run_with_values(session, call, found, used)

    def _run_with_values(self, session: Any, call: Any, found: Closure, used: list[Value]) -> list[Any]:
        take_back([value for value in used if value.belongs_to(session)], boundary.run_in_session)
        runners = [self._programs[name] for name in found.programs]
        changed = [value for name, value in self._values.items() if name in found.written]
        try:
            for runner in runners:
                runner.values_are_known = not any(value in changed for value in runner.values)
                if runner.values_are_known:
                    hand_over(runner.values, session, boundary.run_in_session)
                else:
                    take_back(runner.values, boundary.run_in_session)
            results = call.run()
        except BaseException:
            # Some of the new values may have arrived in the session.
            changed = used
            raise
        finally:
            for runner in runners:
                runner.values_are_known = False
            for value in changed:
                value.forget()
        return results


def _as_raised(error: tf.errors.OpError) -> tf.errors.OpError:
    """An error of a queue as it was raised: TensorFlow hands on only some kinds from Python."""
    named = re.search(r"^(\w+Error): (.*)", error.message, re.MULTILINE)
    kind = getattr(tf.errors, named[1], None) if named else None
    return error if kind is None or named is None else kind(error.node_def, error.op, named[2])


def of_graph(graph: tf.Graph) -> GraphState:
    """The state of a graph; from now on its sessions run as described above."""
    _install()
    return _graphs.setdefault(graph, GraphState())


@functools.cache
def _install() -> None:
    def run(session: Any, call: Any) -> list[Any]:
        state = _graphs.get(session.graph)
        if state is None:
            return call.run()
        try:
            return state.run(session, call)
        except tf.errors.UnknownError as error:
            raise _as_raised(error) from None

    def refuse_partial_run(session: Any) -> None:
        if session.graph in _graphs:
            raise UnsupportedError(
                "partial_run is not supported in a graph with programs for the IPU: a program runs as a whole. Use "
                "session.run with all feeds."
            )

    def leave(session: Any) -> None:
        state = _graphs.get(session.graph)
        if state is not None:
            state.flush(session)

    boundary.replace_session_runs(run, refuse_partial_run, leave)
