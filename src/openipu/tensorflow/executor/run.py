"""`strategy.run`: one TensorFlow function as one program on the device."""

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction, PolymorphicFunction

from openipu.compiler import progress
from openipu.compiler.traps import NONE
from openipu.program import Plan
from openipu.runtime import CompiledPrograms, Session, bring_all_home, compiling
from openipu.tensorflow.boundary import always_converted, eager_mode, raw_handle
from openipu.tensorflow.capture.function import Captured, capture, refuse_resource
from openipu.tensorflow.configuration import devices, synthetic
from openipu.tensorflow.executor.setting import refusing, setting_of, showing_compilation
from openipu.tensorflow.executor.setting import run as run_session
from openipu.tensorflow.feeds.program import FedFunction, has_feeds
from openipu.tensorflow.ops import collectives
from openipu.tensorflow.ops.accumulation import check_loops, counts_gradients
from openipu.tensorflow.program.assembly import VariableProgram, assemble

if TYPE_CHECKING:
    from openipu.tensorflow.executor.strategy import OnIPUs


@attrs.frozen(eq=False)
class CompiledFunction:
    """A function that is ready to run.

    Attributes:
      session: runs it.
      structure: of its results.
      program: what was compiled, and the variables it works on.
      fed: its feeds; None when it has none.
    """

    session: Session
    structure: Any
    program: VariableProgram
    fed: FedFunction | None


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


# Runs a compiled function that returns nothing.
Runner = Callable[[list[np.ndarray]], None]
# Other ways to compile such a function, asked first; rooms above this one say which.
_ways: list[Callable[..., Runner | None]] = []


def compile_otherwise(way: Callable[..., Runner | None]) -> None:
    """Have a function asked first whether it compiles a function.

    Args:
      way: (function of flat tensors, specs, name, ordinal of the device, context to trace in) -> what runs it, or None.
    """
    _ways.append(way)


# Runs a function in a graph of TensorFlow 1; the room above this one says how.
_in_graphs: list[Callable[["OnIPUs", Callable, tuple, dict], Any]] = []


def run_in_graphs(runner: Callable[["OnIPUs", Callable, tuple, dict], Any]) -> None:
    """Have a function called for `strategy.run` in graphs of TensorFlow 1."""
    _in_graphs[:] = [runner]


_compiled: "weakref.WeakKeyDictionary[Any, CompiledPrograms]" = weakref.WeakKeyDictionary()


def run(strategy: "OnIPUs", fn: Callable, args: tuple, kwargs: dict) -> Any:
    """Compile `fn` for these arguments, once, and run it."""
    if not tf.executing_eagerly() and not tf.inside_function() and not collectives.tracing():
        return _in_graphs[0](strategy, fn, args, kwargs)
    leaves = tf.nest.flatten((args, kwargs), expand_composites=True)
    tensors = [tf.convert_to_tensor(leaf) if _is_tensor(leaf) else None for leaf in leaves]
    for tensor in tensors:
        _refuse_double(tensor, "input")
        if tensor is not None:
            refuse_resource(tensor, getattr(fn, "__name__", "function"))
    inputs = [t for t in tensors if t is not None]
    compiled = _compile(strategy, fn, (args, kwargs), leaves, tensors)
    if not isinstance(compiled, CompiledFunction):
        return compiled([t.numpy() for t in inputs])
    if tf.executing_eagerly():
        return _results(compiled, execute(compiled, strategy.device_ordinal, [t.numpy() for t in inputs]))
    return _run_in_function(strategy, compiled, inputs)


def _compile(
    strategy: "OnIPUs", fn: Callable, structure: Any, leaves: list, tensors: list
) -> CompiledFunction | Runner:
    fixed = tuple(_Fixed(leaf) for leaf, t in zip(leaves, tensors, strict=True) if t is None)
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in tensors if t is not None]
    key = (fixed, tuple((tuple(s.shape), s.dtype.name) for s in specs), strategy.device_ordinal)
    with compiling():
        programs = _compiled.get(fn)
        if programs is None:
            programs = _compiled[fn] = CompiledPrograms()
        if key not in programs:
            # A plain function inside a host function gets loops and conditions from AutoGraph, as the host's own code.
            graph = fn if isinstance(fn, (PolymorphicFunction, ConcreteFunction)) else tf.function(fn)

            @contextlib.contextmanager
            def one_replica() -> Iterator[None]:
                with strategy.replica_context(), collectives.reducing():
                    yield

            def calling(function: Callable) -> Callable:
                def program(*inputs: tf.Tensor) -> Any:
                    given = iter(inputs)
                    flat = [next(given) if t is not None else leaf for leaf, t in zip(leaves, tensors, strict=True)]
                    args, kwargs = tf.nest.pack_sequence_as(structure, flat, expand_composites=True)
                    with one_replica():
                        return function(*args, **kwargs)

                return program

            name, ordinal = getattr(fn, "__name__", "function"), strategy.device_ordinal
            runner = None
            if _ways and tf.executing_eagerly() and strategy.instances == 1 and isinstance(fn, PolymorphicFunction):
                function: Any = fn
                plain = calling(always_converted(function.python_function))
                runner = next(filter(None, (way(plain, specs, name, ordinal, one_replica) for way in _ways)), None)
            programs[key] = runner or compile_function(calling(graph), specs, name, ordinal, strategy.instances)
        return programs[key]


def compile_function(
    function: Callable,
    specs: Sequence[tf.TensorSpec],
    name: str,
    ordinal: int,
    instances: int = 1,
    traps: bool = True,
) -> CompiledFunction:
    """Compile a function of flat tensors.

    Args:
      function: the function.
      specs: of its arguments.
      name: for messages.
      ordinal: of the device it is compiled for.
      instances: processes that it is spread over.
      traps: stop at invalid numbers, as the configuration says.
    """
    with eager_mode(), showing_compilation(name):
        progress.begin("Capture")
        captured = capture(function, specs, name)
        if any(counts_gradients(variable) for variable in captured.used):
            check_loops(captured.lowered.occurrences("openipu.accumulating", "group"))
        for output in tf.nest.flatten(captured.structure):
            _refuse_double(output, "output")
        return compile_captured(captured, specs, ordinal, instances, traps)


def compile_captured(
    captured: Captured, specs: Sequence[tf.TensorSpec], ordinal: int, instances: int = 1, traps: bool = True
) -> CompiledFunction:
    """Compile a function that was captured for tensors of these specs; the rest is as of `compile_function`."""
    replicas = devices.replicas(ordinal, captured.graph.shards)
    fed = FedFunction(captured, replicas) if has_feeds(captured) else None
    step, feeds = (captured, []) if fed is None else (fed, fed.feed_specs)
    setting = setting_of(ordinal, synthetic.of_function())
    setting = setting if traps else attrs.evolve(setting, traps=NONE)
    plan = Plan(
        replicas=replicas,
        stochastic_rounding=devices.stochastic_rounding(replicas),
        instances=devices.instances(instances),
    )
    program = assemble(captured.name, [*specs, *feeds], step, traps=bool(setting.traps))
    return CompiledFunction(program.session(plan, setting), captured.structure, program, fed)


def execute(compiled: CompiledFunction, ordinal: int, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """One execution on a device; returns the results of the first replica, flat."""
    session = compiled.session
    layout = session.plan.layout

    def run_once(blocks: Sequence[np.ndarray]) -> list[Any]:
        given = [np.broadcast_to(i, layout.shape(i.shape, 1)) for i in inputs]
        with refusing():
            feeds = session.place(lambda: [*given, *(layout.with_axis(block)[None] for block in blocks)])
        results = run_session(session, feeds, devices.next_seeds(ordinal, session.plan.all_replicas))
        return [layout.without_axis(output[0]) for output in results.outputs]

    outputs = run_once([]) if compiled.fed is None else compiled.fed.run(run_once)
    return [np.asarray(layout.first(layout.with_axis(o))) for o in outputs]


def _run_in_function(strategy: "OnIPUs", compiled: CompiledFunction, inputs: list[tf.Tensor]) -> Any:
    """The same from inside a host function: the program is one operation of it."""
    wanted = [t for t in tf.nest.flatten(compiled.structure) if tf.is_tensor(t)]

    def call(*values: tf.Tensor) -> list[np.ndarray]:
        outputs = execute(compiled, strategy.device_ordinal, [v.numpy() for v in values[: len(inputs)]])
        # The rest of the host function reads variables through handles of its own.
        bring_all_home()
        return outputs

    # The handles are not used: they order this operation among others that use the same variables.
    handles = [raw_handle(v) for v in (*compiled.program.shared, *compiled.program.local)]
    outputs = tf.py_function(call, [*inputs, *handles], [t.dtype for t in wanted])
    outputs = [tf.ensure_shape(o, t.shape) for o, t in zip(outputs, wanted, strict=True)]
    return _results(compiled, outputs)


def _results(compiled: CompiledFunction, outputs: list) -> Any:
    given = iter(outputs)
    leaves = tf.nest.flatten(compiled.structure)
    flat = [tf.convert_to_tensor(next(given)) if tf.is_tensor(leaf) else leaf for leaf in leaves]
    return tf.nest.pack_sequence_as(compiled.structure, flat)


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, (np.ndarray, np.generic)) or (tf.is_tensor(leaf) and not isinstance(leaf, tf.Variable))


def _refuse_double(tensor: Any, what: str) -> None:
    if tf.is_tensor(tensor) and tensor.dtype == tf.float64:
        raise TypeError(f"Unsupported data type for {what}: float64")
