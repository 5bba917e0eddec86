"""`experimental_application_compile_op`: a function compiled to a file, without being run."""

import inspect
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction, PolymorphicFunction

from openipu.compiler import cache, export
from openipu.errors import UnsupportedError
from openipu.program import Slot
from openipu.runtime import DeviceEngine
from openipu.tensorflow.applications.file import Application, Record, Signature, write
from openipu.tensorflow.boundary import always_converted
from openipu.tensorflow.capture import placement
from openipu.tensorflow.executor.run import CompiledFunction, compile_function
from openipu.tensorflow.feeds.program import Use
from openipu.tensorflow.feeds.reader import sizes
from openipu.tensorflow.ops import collectives


def experimental_application_compile_op(
    func: Callable,
    inputs: Sequence[Any] | None = None,
    output_path: str | None = None,
    freeze_variables: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Compile `func(*inputs)` to a file that `embedded_runtime` starts.

    Args:
      func: a function of tensors, whose infeeds and outfeeds become the inputs and outputs of calls.
      inputs: tensors or specs; only their shapes and dtypes matter.
      output_path: the file; a new temporary one by default.
      freeze_variables: keep the values of variables in the file; else whoever starts it gives them.
      name: of the application.

    Returns:
      The file's path, a string tensor.
    """
    if not tf.executing_eagerly():
        raise UnsupportedError(
            "experimental_application_compile_op compiles in eager mode only. Received: a call in a graph. Call it "
            "outside of tf.function and tf.Graph."
        )
    if not callable(func):
        raise TypeError(f"func must be a function. Received: func={func!r}.")
    specs = [_spec(value) for value in inputs or ()]
    graph = func if isinstance(func, PolymorphicFunction | ConcreteFunction) else tf.function(_without_operations(func))

    def program(*tensors: tf.Tensor) -> Any:
        with collectives.reducing():
            return graph(*tensors)

    title = name or getattr(func, "__name__", "application").strip("<>")
    compiled = compile_function(program, specs, title, placement.current_device() or 0, traps=False)
    path = Path(output_path) if output_path else Path(tempfile.mkdtemp()) / f"{title}{cache.TENSORFLOW}"
    write(path, _application(compiled, specs, _names(func, len(specs)), freeze_variables))
    return tf.constant(str(path))


def _without_operations(func: Callable) -> Callable:
    """Also functions that return what a loop without results returns; all that changes something runs anyway."""
    function = always_converted(func)

    def returning_tensors(*tensors: tf.Tensor) -> Any:
        returned = function(*tensors)
        return tf.nest.map_structure(lambda leaf: None if isinstance(leaf, tf.Operation) else leaf, returned)

    return returning_tensors


def _application(
    compiled: CompiledFunction, specs: Sequence[tf.TensorSpec], names: Sequence[str], freeze: bool
) -> Application:
    engine, fed = compiled.session.engine, compiled.fed
    if not isinstance(engine, DeviceEngine):
        raise UnsupportedError(
            "An application is compiled for a device that can be attached. Received: a configuration with "
            "DeviceConnectionType.PRE_COMPILE or NEVER, or stages on several JAX devices."
        )
    infeeds, outfeeds = (fed.infeeds, fed.outfeeds) if fed is not None else ((), ())
    steps = {use.steps for use in infeeds}
    if len(steps) > 1 or None in steps or any(use.live is not None for use in outfeeds):
        raise UnsupportedError(
            "The infeeds of an application give the same number of elements in every execution, which is known. "
            f"Received: {sorted(map(str, steps))} elements. Use ipu.loops.repeat with a Python number."
        )
    if infeeds and any(use.slots not in steps for use in outfeeds):
        raise UnsupportedError(
            "The outfeeds of an application get one value for each element of its infeeds. "
            f"Received: {[use.slots for use in outfeeds]} values for {sorted(map(str, steps))} elements."
        )
    variables = (*compiled.program.shared, *compiled.program.local)
    results = [leaf for leaf in tf.nest.flatten(compiled.structure) if tf.is_tensor(leaf)]
    record = Record(
        name=engine.program.name,
        replicas=engine.plan.replicas,
        steps=next(iter(steps), None),
        arguments=[Signature(n, sizes(s), s.dtype.name) for n, s in zip(names, specs, strict=True)],
        shared=[_slot(s) for s in engine.program.shared],
        local=[_slot(s) for s in engine.program.local],
        infeeds=[s for use in infeeds for s in _parts(use)],
        outfeeds=[s for use in outfeeds for s in _parts(use)],
        results=[Signature(f"output_{i}", sizes(r), r.dtype.name) for i, r in enumerate(results)],
        draws=engine.program.needs_key,
    )
    values = {place: np.asarray(v.numpy()) for place, v in enumerate(variables)} if freeze else {}
    return Application(record, export(engine.executable), values)


def _parts(use: Use) -> list[Signature]:
    specs = use.queue.flat_specs
    return [Signature(s.name or f"{use.queue.name}_{i}", sizes(s), s.dtype.name) for i, s in enumerate(specs)]


def _slot(slot: Slot) -> Signature:
    return Signature(slot.name, slot.shape, slot.dtype.name)


def _spec(value: Any) -> tf.TensorSpec:
    spec = value if isinstance(value, tf.TensorSpec) else tf.TensorSpec.from_tensor(tf.convert_to_tensor(value))
    if not spec.shape.is_fully_defined():
        raise ValueError(f"inputs must have static shapes. Received: {spec}.")
    return spec


def _names(func: Callable, count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(getattr(func, "python_function", func)).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    found = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    return found + [f"input_{i}" for i in range(len(found), count)]
