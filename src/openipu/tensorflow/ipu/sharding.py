"""Which shards the operations of a graph are assigned to."""

from collections.abc import Iterable

import tensorflow as tf

from openipu.tensorflow.capture import graph_attributes, placement

__all__ = [
    "dependencies",
    "enable_sharded_gradient_tape",
    "get_shard_from_colocation",
    "get_sharding",
    "has_attr",
    "propagate_sharding",
]


def has_attr(o: tf.Operation, attr_name: str) -> bool:
    """Whether an operation has an attribute of that name."""
    try:
        o.get_attr(attr_name)
    except ValueError:
        return False
    return True


def get_sharding(op: tf.Operation) -> list[int] | None:
    """The shard indices of an operation, or None if it was not created in an `ipu_shard` scope."""
    shards = placement.parse_shards(graph_attributes.read(op).get(placement.SHARD_ATTRIBUTE))
    return None if shards is None else list(shards)


def dependencies(roots: Iterable[tf.Operation | tf.Tensor]) -> set[tf.Operation]:
    """The given operations and all that must run before them."""
    found: set[tf.Operation] = set()
    waiting = [root.op if isinstance(root, tf.Tensor) else root for root in roots]
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting.extend(tensor.op for tensor in op.inputs)
            waiting.extend(op.control_inputs)
    return found


def get_shard_from_colocation(op: tf.Operation) -> list[int] | None:
    """The shard indices of an operation that `op` must be placed with, or None."""
    for group in op.colocation_groups():
        name = group.decode().removeprefix("loc:@")
        if name == op.name:
            continue
        try:
            other = op.graph.get_operation_by_name(name)
        except KeyError:
            continue
        shards = get_sharding(other)
        if shards is not None:
            return shards
    return None


def propagate_sharding(g: tf.Graph) -> None:
    """Gives operations without shards the shards of those they must be placed with, as far as that leads."""
    waiting = [op for op in g.get_operations() if get_sharding(op) is None]
    while waiting:
        found = {op: shards for op in waiting if (shards := get_shard_from_colocation(op)) is not None}
        if not found:
            return
        for op, shards in found.items():
            attributes = {
                **graph_attributes.read(op),
                placement.SHARD_ATTRIBUTE: placement.format_shards(tuple(shards)),
            }
            graph_attributes.write(op, attributes)
        waiting = [op for op in waiting if op not in found]


def enable_sharded_gradient_tape() -> None:
    """Accepted for compatibility: gradients are computed with the shard of their forward operation in any case.

    The name of a gradient operation says which forward operation it belongs to, so no tape has to be changed.
    """
