"""`horovod.torch`, as far as IPU programs use it."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

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
from openipu.torch.arrays import to_array, to_tensor

DistributedOptimizer = common.refuse_optimizer

__all__ = [
    "Average",
    "DistributedOptimizer",
    "Max",
    "Min",
    "Sum",
    "allgather",
    "allreduce",
    "allreduce_",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_parameters",
    "grouped_allreduce",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]


def allreduce(
    tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op: str | None = None
) -> torch.Tensor:
    """The mean over all processes, or what `op` says."""
    return _like(common.reduced(_read(tensor), average, name, op), tensor)


def allreduce_(
    tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op: str | None = None
) -> torch.Tensor:
    """As `allreduce`, in place."""
    with torch.no_grad():
        return tensor.copy_(allreduce(tensor, average, name, op))


def grouped_allreduce(
    tensors: Iterable[torch.Tensor], average: bool | None = None, name: str | None = None, op: str | None = None
) -> list[torch.Tensor]:
    """`allreduce` of several tensors."""
    return [allreduce(t, average, f"{name or 'group'}.{i}", op) for i, t in enumerate(tensors)]


def allgather(tensor: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """The tensors of all processes along the first axis."""
    return to_tensor(common.gathered(_read(tensor), name))


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """The tensor of one process."""
    return _like(common.sent(_read(tensor), root_rank, name), tensor)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """As `broadcast`, in place."""
    with torch.no_grad():
        return tensor.copy_(broadcast(tensor, root_rank, name))


def broadcast_parameters(params: Mapping[str, Any] | Iterable[tuple[str, Any]], root_rank: int) -> None:
    """Gives all tensors of a state dict the values of one process, in place."""
    named = dict(params)
    for name in sorted(named):
        tensor = named[name]
        if isinstance(tensor, torch.Tensor):
            broadcast_(tensor, root_rank, name)


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """An object of one process that `torch.save` can write and `torch.load` reads without running code."""
    import io

    buffer = io.BytesIO()
    torch.save(obj, buffer)
    data = np.frombuffer(buffer.getvalue(), np.uint8)
    length = int(common.sent(np.array(len(data)), root_rank, f"{name or 'object'}.length"))
    sized = np.resize(data, length) if common.rank() != root_rank else data
    return torch.load(io.BytesIO(common.sent(sized, root_rank, name or "object").tobytes()), weights_only=True)


def _like(made: np.ndarray, tensor: torch.Tensor) -> torch.Tensor:
    return to_tensor(made).reshape(tensor.shape).to(tensor.dtype)


def _read(tensor: torch.Tensor) -> np.ndarray:
    # A clone is a use that is noticed: what a model trains comes home first.
    return to_array(tensor.detach().clone())
