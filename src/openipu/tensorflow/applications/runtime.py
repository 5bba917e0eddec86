"""`embedded_runtime`: start applications from files, and call them."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from openipu.tensorflow.applications import file
from openipu.tensorflow.applications.engine import ApplicationEngine
from openipu.tensorflow.applications.file import Record, Signature
from openipu.tensorflow.capture import placement

_TIMEOUT = 5000
Inputs = Sequence[Any] | Mapping[str, Any] | None


class RuntimeContext:
    """A started application.

    Args:
      name: what it was started as.
      executable_file: where it comes from.
      executable_proto: what it takes and gives: a `Record`.
      start_output: what its function returned when it was started.
    """

    def __init__(self, name: str, executable_file: str, executable_proto: Record, start_output: Any) -> None:
        self._name = name
        self._file = executable_file
        self._record = executable_proto
        self._output = start_output
        self._engine: ApplicationEngine | None = None

    def name(self) -> str:
        """What it was started as."""
        return self._name

    def signature(self) -> Record:
        """What the application takes and gives."""
        return self._record

    def start_output(self) -> Any:
        """What its function returned in the last execution; before that, what was given."""
        return self._engine.start_output if self._engine is not None else self._output

    def output_types(self) -> list[tf.DType]:
        """The dtypes of what a call gives."""
        return [tf.as_dtype(s.dtype) for s in self.engine.outputs]

    @property
    def engine(self) -> ApplicationEngine:
        """What runs it."""
        if self._engine is None:
            raise RuntimeError("This context was not made by embedded_runtime_start.")
        return self._engine


def embedded_runtime_start(
    executable_file: Any, inputs: Inputs, name: str, timeout: int | None = None
) -> RuntimeContext:
    """Start an application.

    Args:
      executable_file: a file that `experimental_application_compile_op` wrote.
      inputs: what stays the same for all calls, as a list or by name: the arguments of a function with infeeds, then
        the values of variables that are not frozen.
      name: of the engine.
      timeout: microseconds that a call waits for others to share an execution with; 5000 by default.
    """
    path = _path(executable_file)
    if timeout is not None and timeout < 0:
        raise ValueError(f"timeout must be 0 or more microseconds. Received: timeout={timeout}.")
    application = file.read(path)
    record = application.record
    arguments = record.arguments if record.steps is not None else ()
    missing = [s for place, s in enumerate(record.variables) if place not in application.values]
    given = _checked([*arguments, *missing], inputs)
    rest = iter(given[len(arguments) :])
    values = [
        application.values[place] if place in application.values else next(rest)
        for place in range(len(record.variables))
    ]
    context = RuntimeContext(name, path, record, None)
    ordinal = placement.current_device() or 0
    context._engine = ApplicationEngine(
        application, values, given[: len(arguments)], ordinal, _TIMEOUT if timeout is None else timeout
    )
    return context


def embedded_runtime_call(inputs: Inputs, context: RuntimeContext) -> list[tf.Tensor]:
    """The outputs of a started application for one element; many threads may call at the same time.

    Args:
      inputs: the parts of an element, as a list or by name.
      context: of the application.
    """
    engine = context.engine
    if tf.executing_eagerly():
        return [tf.convert_to_tensor(o) for o in engine.call(_checked(engine.inputs, inputs))]
    tensors = [tf.convert_to_tensor(value) for value in _listed(engine.inputs, inputs)]
    for place, (tensor, signature) in enumerate(zip(tensors, engine.inputs, strict=True)):
        _check(place, tensor, signature)

    def call(*values: np.ndarray) -> list[np.ndarray]:
        return engine.call(list(values))

    outputs = tf.numpy_function(call, tensors, context.output_types())
    outputs = outputs if isinstance(outputs, list) else [outputs]
    return [tf.ensure_shape(o, s.shape) for o, s in zip(outputs, engine.outputs, strict=True)]


def embedded_runtime_start_and_call(
    executable_file: Any, startup_inputs: Inputs, call_inputs: Inputs, name: str
) -> tuple[list[tf.Tensor], RuntimeContext]:
    """Start an application and call it once: the outputs, and the context for more calls."""
    context = embedded_runtime_start(executable_file, startup_inputs, name)
    return embedded_runtime_call(call_inputs, context), context


def embedded_runtime_stop(context: RuntimeContext) -> None:
    """Refused, as in the original."""
    raise NotImplementedError("Embedded runtime doesn't support stopping an engine.")


def _path(executable_file: Any) -> str:
    value = executable_file.numpy() if tf.is_tensor(executable_file) else executable_file
    return os.fsdecode(value.item() if isinstance(value, np.ndarray) else value)


def _checked(signatures: Sequence[Signature], inputs: Inputs) -> list[np.ndarray]:
    arrays = [np.asarray(value) for value in _listed(signatures, inputs)]
    for place, (array, signature) in enumerate(zip(arrays, signatures, strict=True)):
        _check(place, array, signature)
    return arrays


def _check(place: int, value: Any, signature: Signature) -> None:
    where = f"at position {place} ('{signature.name}')"
    if tuple(value.shape) != signature.shape:
        raise ValueError(f"Mismatched input shape {where}. Expected {signature.shape}, but input {place} has shape "
                         f"{tuple(value.shape)}.")  # fmt: skip
    dtype = tf.as_dtype(value.dtype).name
    if dtype != signature.dtype:
        raise ValueError(f"Mismatched input dtype {where}. Expected {signature.dtype}, but input {place} has dtype "
                         f"{dtype}.")  # fmt: skip


def _listed(signatures: Sequence[Signature], inputs: Inputs) -> list[Any]:
    """Inputs in the order of the signatures."""
    if isinstance(inputs, Mapping):
        names = [s.name for s in signatures]
        unknown = [name for name in inputs if name not in names]
        missing = [name for name in names if name not in inputs]
        if unknown or missing:
            raise ValueError(
                f"Embedded application runtime expects inputs by the names {names}. Received: unknown {unknown}, "
                f"missing {missing}."
            )
        return [inputs[name] for name in names]
    given = list(inputs or ())
    if len(given) != len(signatures):
        raise ValueError(
            f"Embedded application runtime expects {len(signatures)} inputs, but {len(given)} were provided."
        )
    return given
