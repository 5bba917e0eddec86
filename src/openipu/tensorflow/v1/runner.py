"""Runs a computation of TensorFlow 1: compiled for the shapes it is given, on the session's variables."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from openipu.compiler import progress
from openipu.runtime import CompiledPrograms, compiling
from openipu.tensorflow import boundary
from openipu.tensorflow.capture.function import capture
from openipu.tensorflow.capture.variables import live_elsewhere, remember
from openipu.tensorflow.executor.run import CompiledFunction, compile_captured, execute
from openipu.tensorflow.executor.setting import showing_compilation
from openipu.tensorflow.v1.computation import Computation
from openipu.tensorflow.v1.values import Value


class _FeedEnded(StopIteration):
    """TensorFlow makes an `OutOfRangeError` of it where the session is."""


class Runner:
    """Compiles a computation for the shapes it is given, and runs it.

    Attributes:
      computation: what is run.
      values: of the computation's variables.
      values_are_known: whether the devices' values are those of the session that runs; otherwise it hands them over.
    """

    def __init__(self, computation: Computation, values: Sequence[Value], ordinal: int, instances: int = 1) -> None:
        self.computation = computation
        self.values = tuple(values)
        self.values_are_known = False
        self._ordinal = ordinal
        self._instances = instances
        self._programs = CompiledPrograms()
        self._lock = threading.Lock()

    def __call__(self, *given: tf.Tensor) -> list[tf.Tensor]:
        """One execution in the middle of a graph: inputs and values of the variables in, outputs and new values out."""
        count = len(self.computation.inputs)
        if not self.values_are_known:
            for value, tensor in zip(self.values, given[count:], strict=True):
                value.replace(tensor.numpy())
        try:
            outputs = self.run([tensor.numpy() for tensor in given[:count]])
        except tf.errors.OutOfRangeError as error:
            raise _FeedEnded(error.message) from error
        written = []
        for value in (self.values[i] for i in self.computation.written):
            written.append(value.read())
            # The session gets it from here.
            value.settle()
        return [tf.constant(value) for value in [*outputs, *written]]

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One execution on the values as they are; the new ones stay on the device."""
        with self._lock:
            return execute(self._compiled(inputs), self._ordinal, inputs)

    def _compiled(self, inputs: Sequence[np.ndarray]) -> CompiledFunction:
        key = tuple((i.shape, i.dtype) for i in inputs)
        with compiling():
            if key not in self._programs:
                # A thread of a session may be building a graph.
                with tf.init_scope(), boundary.eager_mode():
                    self._programs[key] = self._compile([tf.TensorSpec(i.shape, i.dtype) for i in inputs])
            return self._programs[key]

    def _compile(self, specs: list[tf.TensorSpec]) -> CompiledFunction:
        computation = self.computation
        with showing_compilation(computation.name):
            progress.begin("Capture")
            pairs = zip(computation.variables, self.values, strict=True)
            stand_ins = [self._stand_in(variable, value) for (variable, _), value in pairs]
            handles = [boundary.raw_handle(v) for v in stand_ins]
            captured = capture(lambda *given: computation.rebuild(given, handles), specs, computation.name)
            return compile_captured(captured, specs, self._ordinal, self._instances)

    @staticmethod
    def _stand_in(variable: Any, value: Value) -> tf.Variable:
        """A variable outside of all graphs, for the tracing; its value is the session's."""
        made = tf.Variable(tf.zeros(variable.shape, variable.dtype.base_dtype), name=variable.op.name, trainable=False)
        remember(made)
        live_elsewhere(made, value.resident)
        return made
