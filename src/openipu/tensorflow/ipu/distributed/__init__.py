"""Training with several processes: collectives on the host, and the strategy."""

from openipu.tensorflow.ipu.lazy import lazy

_COLLECTIVES = ("allgather", "allreduce", "broadcast")

__getattr__, __dir__ = lazy(
    __name__,
    {
        **{name: f"host_collective_ops:{name}" for name in _COLLECTIVES},
        "host_collective_ops": "host_collective_ops",
        "popdist_strategy": "popdist_strategy",
    },
)
