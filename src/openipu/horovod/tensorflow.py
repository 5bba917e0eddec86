"""`horovod.tensorflow`, as far as IPU programs use it."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from openipu.horovod import common
from openipu.horovod.common import (
    Average,
    Max,
    Min,
    Sum,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)

DistributedOptimizer = common.refuse_optimizer

__all__ = [
    "Average",
    "DistributedOptimizer",
    "Max",
    "Min",
    "Sum",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_variables",
    "grouped_allreduce",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]


def allreduce(tensor: Any, average: bool | None = None, name: str | None = None, op: str | None = None) -> tf.Tensor:
    """The mean over all processes, or what `op` says."""
    return tf.convert_to_tensor(common.reduced(_array(tensor), average, name, op))


def grouped_allreduce(
    tensors: Iterable[Any], average: bool | None = None, name: str | None = None, op: str | None = None
) -> list[tf.Tensor]:
    """`allreduce` of several tensors."""
    return [allreduce(t, average, f"{name or 'group'}.{i}", op) for i, t in enumerate(tensors)]


def allgather(tensor: Any, name: str | None = None) -> tf.Tensor:
    """The tensors of all processes along the first axis."""
    return tf.convert_to_tensor(common.gathered(_array(tensor), name))


def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> tf.Tensor:
    """The tensor of one process."""
    return tf.convert_to_tensor(common.sent(_array(tensor), root_rank, name))


def broadcast_variables(variables: Iterable[tf.Variable], root_rank: int) -> None:
    """Gives all variables the values of one process."""
    for index, variable in enumerate(variables):
        variable.assign(broadcast(variable, root_rank, f"variable.{index}"))


def _array(tensor: Any) -> Any:
    made = tf.convert_to_tensor(tensor)
    if not tf.executing_eagerly():
        raise ValueError("Horovod's collectives are called eagerly here. In a graph, use ipu.distributed.allreduce.")
    return made.numpy()
