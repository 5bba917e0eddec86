"""Operations that the host runs in the middle of a program: built in a graph of their own, called where they stood."""

import contextlib
import contextvars
import itertools
import os
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import tensorflow as tf

from openipu.contexts import during
from openipu.program import replica
from openipu.runtime import Resident
from openipu.tensorflow import boundary
from openipu.tensorflow.capture.variables import by_handle, live_elsewhere, remember
from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.ops.emit import emit_many, surrounding
from openipu.tensorflow.stablehlo import custom_call

_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("openipu_outside_compilation", default=False)
_numbers = itertools.count()
_regions: dict[int, "_Region"] = {}
# One for each program that is traced: what reads and assigns it is kept, and ordered, by TensorFlow itself.
_cursors: "weakref.WeakKeyDictionary[Any, tf.Variable]" = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """Have the host run what is built inside, in the program that is being traced."""
    if _inside.get():
        raise ValueError("Illegal nesting of outside_compilation_scope")
    _refuse_a_single_thread(name)
    program: Any = tf.compat.v1.get_default_graph()
    host = boundary.empty_function_graph(name)
    with during(_inside, True), host.as_default():
        yield
    around = list(boundary.functions_around(program, surrounding()))
    region = _Region(name, host, any(map(boundary.is_control_flow, around)), _cursor(around[-1]))
    _regions[number := next(_numbers)] = region
    results = region.emit(number)
    boundary.replace_foreign(program, host, lambda tensor: region.outside(tensor, results))


class _Region:
    """Operations of the host.

    Attributes:
      name: of the scope.
      in_control_flow: whether they stand in a loop or a branch.
    """

    def __init__(self, name: str, host: Any, in_control_flow: bool, cursor: tf.Variable) -> None:
        self.name = name
        self._cursor = cursor
        self.in_control_flow = in_control_flow
        self._message = host.as_graph_def()
        variables = {id(boundary.raw_handle(v) if "_handle" in vars(v) else v.handle): v for v in host.variables}
        # What comes in: tensors of the program with the names of those that stand for them, and what the host has.
        self._given: list[tuple[tf.Tensor, str]] = []
        self._own: list[tuple[tf.Tensor, str]] = []
        self._outer = {inner.ref(): outer for outer, inner in host.captures}
        for outer, inner in host.captures:
            variable = variables.get(id(outer), by_handle(outer))
            if variable is not None:
                self._read(inner.op.name, variable.dtype.base_dtype)
                self._given.append((variable.read_value(), inner.name))
            elif hasattr(outer, "numpy") and not _on_device(outer.dtype):
                self._own.append((outer, inner.name))
            elif _on_device(outer.dtype):
                self._given.append((outer, inner.name))
            else:
                raise UnsupportedError(
                    f"The operations in outside_compilation_scope(name={name!r}) use {outer.name}, a tensor of "
                    f"{outer.dtype.name} of the program: a program for the IPU has none. Make it inside of the scope."
                )
        stand_ins = {inner.op.name for inner in host.inputs} | {inner.op.name for _, inner in host.captures}
        self._made = [t for op in host.get_operations() if op.name not in stand_ins for t in op.outputs]
        self._made = [t for t in self._made if _on_device(t.dtype) and t.shape.is_fully_defined()]
        kept = [node for node in self._message.node if node.name not in stand_ins]
        del self._message.node[:]
        self._message.node.extend(kept)
        for node in [*kept, *(n for f in self._message.library.function for n in f.node_def)]:
            # Attributes of the scopes around are for the IPU, and colocations may name what is not here.
            node.device = ""
            node.attr.pop("_class", None)
        self._specs = [tf.TensorSpec(t.shape, t.dtype) for t in self._made]
        self._names = [t.name for t in self._made]
        # Which of them the program uses, known when it is traced.
        self._used: set[int] = set()

    def _read(self, handle: str, dtype: tf.DType) -> None:
        """Have the operations read the value of a variable, which is the program's, in place of the variable."""
        for node in self._message.node:
            if handle not in (name.partition(":")[0] for name in node.input):
                continue
            if node.op != "ReadVariableOp":
                raise UnsupportedError(
                    f"outside_compilation_scope(name={self.name!r}) contains {node.name} ({node.op}) of a variable. "
                    "Variables belong to the program: inside of the scope they can only be read. Assign and look up "
                    "before or after it."
                )
            node.op = "Identity"
            for attribute in list(node.attr):
                del node.attr[attribute]
            node.attr["T"].type = dtype.as_datatype_enum

    def emit(self, number: int) -> list[tf.Tensor]:
        """The call of the host, in the program."""
        operands = [self._cursor.read_value(), *(tensor for tensor, _ in self._given)]

        @tf.custom_gradient
        def call(*operands: tf.Tensor) -> Any:
            done = tf.TensorSpec([], tf.int32)
            results = emit_many("outside", operands, [done, *self._specs], region=number)

            def gradient(*upstream: tf.Tensor) -> Any:
                raise UnsupportedError(
                    f"Gradients do not go through outside_compilation_scope(name={self.name!r}): put tf.stop_gradient "
                    "around what comes out of it, or compute inside of the program what is differentiated."
                )

            return results, gradient

        done, *results = call(*operands)
        self._cursor.assign(done, read_value=False)
        return results

    def outside(self, tensor: tf.Tensor, results: Sequence[tf.Tensor]) -> tf.Tensor:
        """What stands in the program for a tensor of the host."""
        if (outer := self._outer.get(tensor.ref())) is not None:
            return outer
        for index, name in enumerate(self._names):
            if name == tensor.name:
                self._used.add(index)
                return results[index]
        raise UnsupportedError(
            f"{tensor.name} of outside_compilation_scope(name={self.name!r}) is used in the program, but it is "
            f"{tensor.dtype.name} of shape {tensor.shape}. What comes back must have a static shape and a type that an "
            "IPU has; give it its shape inside of the scope, as in `y = tf.ensure_shape(y, [4, 2])`."
        )

    def lower(self, operands: Sequence[jax.Array], kinds: Sequence[jax.ShapeDtypeStruct]) -> list[Any]:
        """Call the host; what the program does not use stays there."""
        used = sorted(self._used)
        run = self._function(used)
        wanted = [kinds[0], *(kinds[1 + i] for i in used)]

        def call(index: Any, done: Any, *values: Any) -> tuple[np.ndarray, ...]:
            with boundary.eager_mode(), tf.device("/CPU:0"):
                made = boundary.call_directly(run, [tf.constant(np.asarray(v)) for v in values])
                results = [done, *(m.numpy() for m in made)]
            return tuple(np.asarray(r, k.dtype).reshape(k.shape) for r, k in zip(results, wanted, strict=True))

        # The cursor comes from the call, so that it is neither left out nor moved before another; it runs for each
        # replica.
        done, *made = jax.pure_callback(call, tuple(wanted), replica.local_index(), *operands, vmap_method="sequential")
        found = dict(zip(used, made, strict=True))
        zeros = {i: np.zeros(k.shape, k.dtype) for i, k in enumerate(kinds[1:]) if i not in found}
        return [done, *((found | zeros)[i] for i in range(len(kinds) - 1))]

    def _function(self, used: Sequence[int]) -> Any:
        specs = [tf.TensorSpec(t.shape, t.dtype) for t, _ in self._given]

        def run(*values: tf.Tensor) -> list[tf.Tensor]:
            graph = tf.compat.v1.get_default_graph()
            given = {name: value for value, (_, name) in zip(values, self._given, strict=True)}
            given |= {name: boundary.captured_by(graph, tensor) for tensor, name in self._own}
            names = [self._names[i] for i in used]
            return tf.graph_util.import_graph_def(self._message, input_map=given, return_elements=names, name="")

        with tf.init_scope(), boundary.eager_mode():
            return tf.function(run, autograph=False).get_concrete_function(*specs)


def _refuse_a_single_thread(name: str) -> None:
    """Refuse what would wait for ever: a host function's thread waits for the program, which needs another one."""
    threads = tf.config.threading.get_inter_op_parallelism_threads() or _processors()
    if threads == 1 and boundary.is_function(surrounding()):
        raise UnsupportedError(
            f"outside_compilation_scope(name={name!r}) in a program that a tf.function of the host runs needs two "
            "threads of TensorFlow. Received: one. Call tf.config.threading.set_inter_op_parallelism_threads(2) at "
            "the start, or call strategy.run from Python."
        )


def _processors() -> int:
    # Systems other than Linux do not say which of them a process may use.
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _on_device(dtype: tf.DType) -> bool:
    return dtype.is_floating or dtype.is_integer or dtype.is_bool or dtype.is_complex


def _cursor(program: Any) -> tf.Variable:
    if program not in _cursors:
        # In a graph of its own, whose makers of variables are not those of a tf.function, which makes them once only.
        with tf.init_scope(), tf.Graph().as_default(), boundary.eager_mode():
            made = tf.Variable(tf.constant(0), trainable=False, name="outside_compilation", dtype=tf.int32)
        remember(made)
        # Its value means nothing, so the host has none.
        live_elsewhere(made, Resident(read=lambda: np.zeros((), np.int32), write=lambda value: None))
        _cursors[program] = made
    return _cursors[program]


@custom_call("openipu.outside")
def _outside(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    region = _regions[config["region"]]
    if region.in_control_flow:
        raise tf.errors.UnimplementedError(
            None,
            None,
            "`outside_compilation_scope` enclosed in control flow (loop or cond) is not supported",
        )
    return region.lower(operands, kinds)
