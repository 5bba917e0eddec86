"""Collectives between processes, on the host."""

from openipu.tensorflow.executor.host_collectives import allgather, allreduce, broadcast

__all__ = ["allgather", "allreduce", "broadcast"]
