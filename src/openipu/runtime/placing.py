"""Values on their way to devices and back, where devices may belong to several processes."""

import jax
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from openipu.jax_boundary import put_alone


def put(value: np.ndarray, where: Sharding) -> jax.Array:
    """This process' part of a value on its devices; the parts of all processes are the value."""
    if isinstance(where, SingleDeviceSharding):
        return put_alone(value, where)
    if where.is_fully_addressable:
        return jax.device_put(value, where)
    return jax.make_array_from_process_local_data(where, value)


def own(value: jax.Array) -> jax.Array | np.ndarray:
    """This process' part of a value."""
    if value.is_fully_addressable:
        return value
    if value.is_fully_replicated:
        return value.addressable_data(0)
    axis = next(i for i, name in enumerate(value.sharding.spec) if name is not None)  # pyright: ignore
    shards = sorted(value.addressable_shards, key=lambda shard: shard.index[axis].start or 0)
    return np.concatenate([np.asarray(shard.data) for shard in shards], axis)
