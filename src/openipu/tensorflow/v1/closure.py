"""What a run of a session does: which programs, which variables, and what was meant for the IPU but never compiled."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import tensorflow as tf

from openipu.tensorflow.exceptions import UnsupportedError

# Operations that read a variable through its handle; all others may change it.
_READERS = {"ReadVariableOp", "VarIsInitializedOp", "VariableShape", "ResourceGather", "ResourceGatherNd"}
# Operations that compute nothing, or that only the host has: they may stand in an IPU's scope.
_HOST = re.compile(
    r"Placeholder|Const$|VarHandleOp|Variable|ReadVariableOp|AssignVariableOp|VarIsInitialized|Identity|NoOp|Assert|"
    r"PyFunc|Print|Summary|Save|Restore|String|Dataset|Iterator|Queue|MergeV2Checkpoints|ShardedFilename|IsVariable"
)


@attrs.frozen
class Closure:
    """All that runs for some fetches.

    Attributes:
      programs: names of the operations that run programs.
      used: names of the handles of variables that are read or written.
      written: those that others than programs may write.
    """

    programs: frozenset[str]
    used: frozenset[str]
    written: frozenset[str]


def closure(
    roots: Sequence[tf.Operation], fed: Iterable[tf.Tensor], programs: Mapping[str, Any], own: set[str]
) -> Closure:
    """What runs for these operations.

    Args:
      roots: what is fetched.
      fed: tensors whose values are given.
      programs: the operations that run programs, by name.
      own: names of operations with which programs read and write variables.
    """
    given = {tensor.ref() for tensor in fed}
    found: dict[str, tf.Operation] = {}
    waiting = list(roots)
    while waiting:
        op = waiting.pop()
        if op.name in found:
            continue
        found[op.name] = op
        waiting.extend(tensor.op for tensor in op.inputs if tensor.ref() not in given)
        waiting.extend(op.control_inputs)
    used, written = set(), set()
    for name, op in found.items():
        handles = {tensor.op.name for tensor in op.inputs if tensor.dtype == tf.resource}
        used |= handles
        written |= handles if op.type not in _READERS and name not in own else set()
    return Closure(frozenset(found.keys() & programs.keys()), frozenset(used), frozenset(written))


def refuse_uncompiled(roots: Sequence[tf.Operation], fed: Iterable[tf.Tensor], graph: tf.Graph) -> None:
    """Refuse to compute on the host what was meant for the IPU."""
    given = {tensor.ref() for tensor in fed}
    initial = _initial_values(graph)
    seen: set[str] = set()
    waiting = list(roots)
    while waiting:
        op = waiting.pop()
        if op.name in seen or op.name in initial:
            continue
        seen.add(op.name)
        if _is_on_ipu(op) and not _HOST.search(op.type):
            raise UnsupportedError(
                f"{op.name} ({op.type}) was placed on an IPU, but it is not part of a program: the host would compute "
                "it. Put it into the function that is given to ipu_compiler.compile, or, if the host is to compute it, "
                "outside of ipu_scope."
            )
        waiting.extend(tensor.op for tensor in op.inputs if tensor.ref() not in given)
        waiting.extend(op.control_inputs)


def _initial_values(graph: tf.Graph) -> set[str]:
    """Initial values of variables are the host's, wherever they were written down."""
    keys = tf.compat.v1.GraphKeys
    variables = [*graph.get_collection(keys.GLOBAL_VARIABLES), *graph.get_collection(keys.LOCAL_VARIABLES)]
    found: set[str] = set()
    waiting = [v.initializer for v in variables if v.initializer is not None]
    while waiting:
        op = waiting.pop()
        if op.name not in found:
            found.add(op.name)
            waiting.extend(tensor.op for tensor in op.inputs)
            waiting.extend(op.control_inputs)
    return found


def _is_on_ipu(op: tf.Operation) -> bool:
    try:
        return op.get_attr("_XlaScope").startswith(b"jit_scope_ipu")
    except ValueError:
        return False
