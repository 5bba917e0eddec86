"""Seconds that pass outside of an IPU's tiles: between replicas and stages, with the host, to start an execution."""

import math
from collections.abc import Sequence

from openipu.hardware.target import Target
from openipu.model import constants as c
from openipu.model.options import Options


def all_reduce(size: float, replicas: int, collectives: int) -> float:
    """Summing `size` bytes over replicas, in so many collectives."""
    if replicas < 2 or not size:
        return 0.0
    bandwidth = c.COLLECTIVE_BANDWIDTH if replicas <= c.COLLECTIVE_NEAR else c.COLLECTIVE_BANDWIDTH_FAR
    return collectives * c.COLLECTIVE_LATENCY + 2 * (replicas - 1) / replicas * size / bandwidth


def collectives(sizes: Sequence[int], options: Options) -> int:
    """How many collectives gradients of these sizes take."""
    if not options.collective_buffer:
        return len(sizes)
    return max(1, math.ceil(sum(sizes) / options.collective_buffer))


def replica_exchange(sizes: Sequence[int], replicas: int, options: Options) -> float:
    """Seconds in which replicas exchange gradients before one weight update.

    Sharded state makes of one all-reduce a reduction to the shards' owners and, once they have updated their shards, a
    gathering of the results: the same bytes over the links, started twice.
    """
    count = collectives(sizes, options)
    sharded = options.shard_optimizer_state or options.shard_weights
    return all_reduce(sum(sizes), replicas, 2 * count if sharded else count)


def host(fed: float, returned: float, replicas: int, target: Target, options: Options) -> float:
    """Seconds of the transfers of one step of all replicas.

    Args:
      fed, returned: bytes of one step of one replica, either way.
      replicas: how many there are.
      target: the kind of IPU.
      options: whether replicas share one stream.
    """
    if options.synthetic_data:
        return 0.0
    size = fed + returned
    alone = size * (replicas if options.shared_stream else 1) / c.HOST_BANDWIDTH
    # The machine's way to its host is a ceiling for all that share it.
    machine = size * min(replicas, target.ipus_per_host_link) / target.shared_host_bandwidth
    return max(alone, machine)


def launch(options: Options) -> float:
    """Seconds that starting one execution takes."""
    return c.LAUNCH if options.launch_seconds is None else options.launch_seconds


def stage_copy(size: float) -> float:
    """Seconds in which one stage hands `size` bytes to another."""
    return size / c.STAGE_BANDWIDTH


def streaming(size: float) -> float:
    """Seconds in which `size` bytes go to or from streaming memory."""
    return size / c.STREAMING_BANDWIDTH
