"""What all flavours of Horovod share: where this process stands, and collectives on arrays."""

from typing import Any, NoReturn

import numpy as np

from openipu import instances
from openipu.errors import UnsupportedError
from openipu.instances import membership

Average, Sum, Min, Max = "Average", "Sum", "Min", "Max"

_ready = False


def init(*args: Any, **kwargs: Any) -> None:
    """Meets the other processes."""
    global _ready
    instances.join()
    _ready = True


def shutdown() -> None:
    """Forgets that `init` was called; the processes part when they end."""
    global _ready
    _ready = False


def is_initialized() -> bool:
    """Whether `init` was called."""
    return _ready


def size() -> int:
    """How many processes there are."""
    _require()
    return membership().count


def rank() -> int:
    """Which of them this one is."""
    _require()
    return membership().index


def local_size() -> int:
    """How many processes there are on this host."""
    _require()
    return membership().local_count


def local_rank() -> int:
    """Which of those of this host this one is."""
    _require()
    return membership().local_index


def reduced(value: np.ndarray, average: bool | None, name: str | None, op: str | None) -> np.ndarray:
    """The mean (which is the default), sum, minimum or maximum over all processes."""
    _require()
    if average is not None and op is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    if average is not None:
        op = Average if average else Sum
    op = op or Average
    everyone = instances.gather(value, f"horovod.allreduce.{name or ''}")
    if op == Sum:
        return everyone.sum(0, dtype=value.dtype)
    if op == Average:
        total = everyone.sum(0, dtype=value.dtype)
        return (
            total // len(everyone)
            if np.issubdtype(value.dtype, np.integer)
            else total / value.dtype.type(len(everyone))
        )
    if op in (Min, Max):
        return everyone.min(0) if op == Min else everyone.max(0)
    raise ValueError(f"op must be one of Average, Sum, Min, Max. Received: {op!r}.")


def gathered(value: np.ndarray, name: str | None) -> np.ndarray:
    """The values of all processes, one after the other along the first axis, whose length may differ."""
    _require()
    value = np.atleast_1d(value)
    topic = f"horovod.allgather.{name or ''}"
    lengths = instances.gather(np.array(len(value)), f"{topic}.lengths")
    padded = np.zeros((int(lengths.max()), *value.shape[1:]), value.dtype)
    padded[: len(value)] = value
    everyone = instances.gather(padded, topic)
    return np.concatenate([part[:length] for part, length in zip(everyone, lengths, strict=True)])


def sent(value: np.ndarray, root_rank: int, name: str | None) -> np.ndarray:
    """The value of one process."""
    _require()
    return instances.broadcast(value, root_rank, f"horovod.broadcast.{name or ''}")


def refuse_optimizer(*args: Any, **kwargs: Any) -> NoReturn:
    """Refused: gradients never come to the host."""
    raise UnsupportedError(
        "hvd.DistributedOptimizer is not supported: gradients are reduced inside of compiled programs, over all "
        "instances. Give the optimizer itself, with popdist.poptorch.Options or PopDistStrategy."
    )


def _require() -> None:
    if not _ready:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
