"""`strategy.run`: one TensorFlow function as one program on the device."""

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context as eager_context
from tensorflow.types.experimental import ConcreteFunction, PolymorphicFunction

from openipu.compiler import progress
from openipu.program import Plan
from openipu.runtime import Engine, bring_all_home
from openipu.tensorflow import collectives, devices, synthetic
from openipu.tensorflow.capture import capture, refuse_resource
from openipu.tensorflow.programs import assemble, compiling
from openipu.tensorflow.variables import raw_handle

if TYPE_CHECKING:
    from openipu.tensorflow.strategy import IPUStrategyV1


@attrs.frozen(eq=False)
class _Compiled:
    engine: Engine
    structure: Any
    variables: tuple[tf.Variable, ...]


class _Fixed:
    """An argument that is part of the program: a number, a string, a variable, an object."""

    def __init__(self, value: Any) -> None:
        self.value = value
        try:
            self._key = (type(value), id(value) if isinstance(value, tf.Variable) else value)
            hash(self._key)
        except TypeError:
            self._key = (type(value), id(value))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Fixed) and self._key == other._key


_compiled: "weakref.WeakKeyDictionary[Any, dict[tuple, _Compiled]]" = weakref.WeakKeyDictionary()
devices.on_reset(_compiled.clear)


def run(strategy: "IPUStrategyV1", fn: Callable, args: tuple, kwargs: dict) -> Any:
    """Compile `fn` for these arguments, once, and run it."""
    leaves = tf.nest.flatten((args, kwargs), expand_composites=True)
    tensors = [tf.convert_to_tensor(leaf) if _is_tensor(leaf) else None for leaf in leaves]
    for tensor in tensors:
        _refuse_double(tensor, "input")
        if tensor is not None:
            refuse_resource(tensor, getattr(fn, "__name__", "function"))
    compiled = _compile(strategy, fn, (args, kwargs), leaves, tensors)
    inputs = [t for t in tensors if t is not None]
    if eager_context.executing_eagerly():
        return _results(compiled, _execute(strategy, compiled, [t.numpy() for t in inputs]))
    return _run_in_function(strategy, compiled, inputs)


def _compile(strategy: "IPUStrategyV1", fn: Callable, structure: Any, leaves: list, tensors: list) -> _Compiled:
    fixed = tuple(_Fixed(leaf) for leaf, t in zip(leaves, tensors, strict=True) if t is None)
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in tensors if t is not None]
    key = (fixed, tuple((tuple(s.shape), s.dtype.name) for s in specs), strategy.device_ordinal)
    programs = _compiled.setdefault(fn, {})
    if key not in programs:
        # A plain function inside a host function gets its loops and conditions from AutoGraph, as the host's own code.
        graph = fn if isinstance(fn, (PolymorphicFunction, ConcreteFunction)) else tf.function(fn)

        def program(*inputs: tf.Tensor) -> Any:
            given = iter(inputs)
            flat = [next(given) if t is not None else leaf for leaf, t in zip(leaves, tensors, strict=True)]
            args, kwargs = tf.nest.pack_sequence_as(structure, flat, expand_composites=True)
            with strategy.replica_context(), collectives.reducing():
                return graph(*args, **kwargs)

        name = getattr(fn, "__name__", "function")
        with eager_context.eager_mode(), compiling(name):
            progress.begin("Capture")
            captured = capture(program, specs, name)
            for output in tf.nest.flatten(captured.structure):
                _refuse_double(output, "output")
            replicas = devices.replicas(strategy.device_ordinal, captured.graph.shards)
            engine = assemble(captured.name, specs, captured).engine(Plan(replicas=replicas), strategy.device_ordinal)
            assert isinstance(engine, Engine), "a plan without stages has no pipeline"
        programs[key] = _Compiled(engine, captured.structure, tuple(captured.used))
    return programs[key]


def _execute(strategy: "IPUStrategyV1", compiled: _Compiled, inputs: list[np.ndarray]) -> list[np.ndarray]:
    engine = compiled.engine
    devices.require_attached(strategy.device_ordinal)
    replicas = engine.executable.plan.replicas
    lead = (1,) if replicas == 1 else (1, replicas)
    given = [np.broadcast_to(i, (*lead, *i.shape)) for i in inputs]
    if synthetic.instead_of("parameters"):
        given = synthetic.feeds(engine.executable.program.batch, engine.executable.plan)
    results = engine.run(engine.place(given), devices.next_seeds(strategy.device_ordinal, replicas))
    if synthetic.instead_of("parameters"):
        results = synthetic.results(results)
    return [np.asarray(o[0] if replicas == 1 else o[0, 0]) for o in results.outputs]


def _run_in_function(strategy: "IPUStrategyV1", compiled: _Compiled, inputs: list[tf.Tensor]) -> Any:
    """The same from inside a host function: the program is one operation of it."""
    wanted = [t for t in tf.nest.flatten(compiled.structure) if tf.is_tensor(t)]

    def call(*values: tf.Tensor) -> list[np.ndarray]:
        outputs = _execute(strategy, compiled, [v.numpy() for v in values[: len(inputs)]])
        # The rest of the host function reads variables through handles of its own.
        bring_all_home()
        return outputs

    # The handles are not used: they order this operation among others that use the same variables.
    handles = [raw_handle(v) for v in compiled.variables]
    outputs = tf.py_function(call, [*inputs, *handles], [t.dtype for t in wanted])
    outputs = [tf.ensure_shape(o, t.shape) for o, t in zip(outputs, wanted, strict=True)]
    return _results(compiled, outputs)


def _results(compiled: _Compiled, outputs: list) -> Any:
    given = iter(outputs)
    leaves = tf.nest.flatten(compiled.structure)
    flat = [tf.convert_to_tensor(next(given)) if tf.is_tensor(leaf) else leaf for leaf in leaves]
    return tf.nest.pack_sequence_as(compiled.structure, flat)


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, (np.ndarray, np.generic)) or (tf.is_tensor(leaf) and not isinstance(leaf, tf.Variable))


def _refuse_double(tensor: Any, what: str) -> None:
    if tf.is_tensor(tensor) and tensor.dtype == tf.float64:
        raise TypeError(f"Unsupported data type for {what}: float64")
