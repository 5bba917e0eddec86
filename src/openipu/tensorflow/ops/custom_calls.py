"""What the operations of the IPU compute on the replica axis, given to the lowering of captured functions."""

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from openipu.program import replica
from openipu.tensorflow.stablehlo import custom_call

_REDUCTIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "ADD": lambda stacked: stacked.sum(0, dtype=stacked.dtype),
    "MUL": lambda stacked: stacked.prod(0, dtype=stacked.dtype),
    "MIN": lambda stacked: stacked.min(0),
    "MAX": lambda stacked: stacked.max(0),
    "LOGICAL_AND": lambda stacked: (stacked != 0).all(0).astype(stacked.dtype),
    "LOGICAL_OR": lambda stacked: (stacked != 0).any(0).astype(stacked.dtype),
    "SQUARE_ADD": lambda stacked: (stacked * stacked).sum(0, dtype=stacked.dtype),
    "MEAN": lambda stacked: _mean(stacked),
}


@custom_call("openipu.cross_replica_sum")
def _cross_replica_sum(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    return [_over_group(operands[0], config["group_size"], replica.total, _REDUCTIONS["ADD"])]


@custom_call("openipu.cross_replica_mean")
def _cross_replica_mean(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    def of_all(value: jax.Array) -> jax.Array:
        return _divided(replica.total(_wide(value)), replica.count(), value.dtype)

    return [_over_group(operands[0], config["group_size"], of_all, _mean)]


def _over_group(
    value: jax.Array,
    size: int | None,
    of_all: Callable[[jax.Array], jax.Array],
    of_group: Callable[[jax.Array], jax.Array],
) -> jax.Array:
    """A reduction over all replicas, or over the values of a group of so many, stacked."""
    if replica.count() == 1:
        _check_group(size)
        return value
    if size in (None, replica.count()):
        return of_all(value)
    return of_group(_group(value, size))


@custom_call("openipu.all_to_all")
def _all_to_all(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    (value,) = operands
    _check_replicas("all_to_all", config["replicas"])
    if replica.count() == 1:
        return [value]
    return [replica.exchanged(value, config["split"], config["concat"])]


@custom_call("openipu.all_gather")
def _all_gather(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    (value,) = operands
    _check_replicas("all_gather", config["replicas"])
    return [replica.stacked(value)]


@custom_call("openipu.reduce_scatter")
def _reduce_scatter(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    (value,) = operands
    _check_replicas("reduce_scatter", config["replicas"])
    length = kinds[0].shape[0]
    padded = jnp.pad(value, (0, length * replica.count() - value.shape[0]))
    # LOCAL does not communicate: every replica keeps its part of its own values.
    whole = padded if config["reduction"] == "LOCAL" else _REDUCTIONS[config["reduction"]](replica.stacked(padded))
    return [lax.dynamic_slice_in_dim(whole, replica.index() * length, length)]


@custom_call("openipu.replication_index")
def _replication_index(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    return [replica.index()]


@custom_call("openipu.print_tensor")
def _print_tensor(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    (value,) = operands
    replicas = replica.count()

    def show(index: np.ndarray, value: np.ndarray) -> None:
        where = f" (replica {index})" if replicas > 1 else ""
        print(f"{config['title']}{where}: {np.array2string(np.asarray(value))}", file=sys.stderr, flush=True)

    jax.debug.callback(show, replica.index(), value)
    return [value]


def _group(value: jax.Array, size: int) -> jax.Array:
    """The values of this replica's group along a new first axis."""
    _check_group(size)
    # Groups as an argument of the collective are not possible for replicas that are lanes of one device.
    stacked = replica.stacked(value)
    groups = stacked.reshape(replica.count() // size, size, *stacked.shape[1:])
    return lax.dynamic_index_in_dim(groups, replica.index() // size, keepdims=False)


def _mean(stacked: jax.Array) -> jax.Array:
    return _divided(_wide(stacked).sum(0), stacked.shape[0], stacked.dtype)


def _wide(value: jax.Array) -> jax.Array:
    """A type to sum in: the sum of large float16 values would overflow where their mean does not."""
    return value.astype(jnp.promote_types(value.dtype, jnp.float32)) if _is_float(value.dtype) else value


def _divided(total: jax.Array, count: int, dtype: np.dtype) -> jax.Array:
    if not _is_float(dtype):
        return lax.div(total.astype(dtype), jnp.asarray(count, dtype))
    return (total / jnp.asarray(count, total.dtype)).astype(dtype)


def _is_float(dtype: np.dtype) -> bool:
    return jnp.issubdtype(dtype, jnp.floating)


def _check_group(size: int | None) -> None:
    replicas = replica.count()
    if size is not None and replicas % size:
        raise ValueError(
            f"replica_group_size must divide the number of replicas. Received: replica_group_size={size}, "
            f"{replicas} replicas. Use one of {', '.join(str(n) for n in range(1, replicas + 1) if replicas % n == 0)}."
        )


def _check_replicas(name: str, given: int) -> None:
    if given != replica.count():
        raise ValueError(
            f"replication_factor of {name} must be the number of replicas the program runs on, {replica.count()}. "
            f"Received: replication_factor={given}. Pass {replica.count()}, or select more or fewer IPUs in the config."
        )
