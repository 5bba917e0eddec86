"""`ipu_compiler.compile`: a computation as one program of the core, and one operation of the graph that runs it."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow import boundary
from openipu.tensorflow.capture import placement
from openipu.tensorflow.executor.strategy import current
from openipu.tensorflow.ops import collectives
from openipu.tensorflow.v1 import sessions
from openipu.tensorflow.v1.computation import Computation, trace
from openipu.tensorflow.v1.runner import Runner


def compile(computation: Callable, inputs: Sequence[Any] | None = None) -> Any:
    """Run `computation(*inputs)` as one program on the IPU whose scope the caller is in.

    Args:
      computation: builds operations; it may make variables, and returns tensors and operations.
      inputs: its arguments.

    Returns:
      The tensors it returns, as a list; an operation if it returns none.
    """
    given = list(inputs) if inputs is not None else []
    if collectives.tracing():
        # Inside of a program already: the function is part of it.
        return _as_list(computation(*given))
    ordinal = placement.current_device()
    if ordinal is None:
        raise Exception(
            "A computation has been compiled, however it was not placed on an IPU device. Call ipu_compiler.compile "
            "inside of `with ipu.scopes.ipu_scope('/device:IPU:0'):`."
        )
    if tf.executing_eagerly():
        raise RuntimeError(
            "ipu_compiler.compile is for graphs of TensorFlow 1. Received: a call in eager mode. Use strategy.run, or "
            "call tf.disable_v2_behavior() at the start of the program."
        )
    traced = trace(computation, [tf.convert_to_tensor(i) for i in given])
    return _operation(traced, ordinal)


def _operation(traced: Computation, ordinal: int) -> Any:
    """The operation that runs a program: variables are read before it and assigned after it."""
    graph = tf.compat.v1.get_default_graph()
    state = sessions.of_graph(graph)
    # The operations around the program are the host's.
    with _without_marks(graph):
        together = strategy.instances if (strategy := current()) is not None else 1
        runner = Runner(traced, [state.value(v) for v, _ in traced.variables], ordinal, together)
        variables = [v for v, _ in traced.variables]
        given = [*(tensor for tensor, _ in traced.inputs), *(v.read_value() for v in variables)]
        written = [variables[i] for i in traced.written]
        kinds = [*(s.dtype for s in traced.types), *(v.dtype.base_dtype for v in written)]
        made = tf.py_function(runner, given, kinds, name=traced.name)
        call = made if isinstance(made, tf.Operation) else tf.nest.flatten(made)[0].op
        made = [made] if isinstance(made, tf.Tensor) else list(made) if isinstance(made, list | tuple) else []
        outputs, values = made[: len(traced.types)], made[len(traced.types) :]
        assigned = []
        for variable, value in zip(written, values, strict=True):
            value.set_shape(variable.shape)
            assigned.append(variable.assign(value, read_value=False))
        results = _results(outputs, traced, assigned, call)
    state.add(runner, call, results, assigned)
    return results


def _without_marks(graph: tf.Graph) -> contextlib.AbstractContextManager:
    marked = "_XlaScope" in boundary.attributes_to_come(graph)
    return boundary.attribute_scope(graph, {"_XlaScope": None}) if marked else contextlib.nullcontext()


def _results(outputs: Sequence[tf.Tensor], traced: Computation, assigned: list, call: tf.Operation) -> Any:
    """What users fetch: the outputs after all assignments, or an operation."""
    if not outputs:
        return tf.group(*assigned) if assigned else call
    with tf.control_dependencies(assigned):
        results = [tf.identity(output) for output in outputs]
    for result, spec in zip(results, traced.types, strict=True):
        result.set_shape(spec.shape)
    return results


def _as_list(returned: Any) -> Any:
    flat = [r for r in tf.nest.flatten(returned) if r is not None and not isinstance(r, tf.Operation)]
    return flat or tf.no_op()
