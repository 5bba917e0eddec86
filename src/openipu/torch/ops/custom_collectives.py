"""Custom operations of knowledge-graph programs: collectives over replicas, with the gradients they are used for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from openipu.program import replica
from openipu.torch.exceptions import Error
from openipu.torch.ops.custom_ops import register_custom_op

Inputs = Sequence[jax.Array]
Attributes = Mapping[str, Any]
Linear = Callable[[jax.Array], jax.Array]

_DOMAINS = ("ai.graphcore", "ai.graphcore.pea")


def _register(name: str) -> Callable:
    def register(function: Callable) -> Callable:
        for domain in _DOMAINS:
            register_custom_op(domain, name)(function)
        return function

    return register


def _members(attributes: Attributes) -> np.ndarray:
    """For every replica the replicas of its group, in order.

    The grouping is [replicas, distance between members, members]; without one, all replicas are a group.
    """
    total = replica.count()
    replicas, stride, size = attributes.get("__collectiveReplicaGrouping", (total, 1, total))
    if replicas != total or total % (stride * size):
        raise Error(
            f"__collectiveReplicaGrouping must fit the {total} replicas of the program: [replicas, stride, size]. "
            f"Received: {[replicas, stride, size]}."
        )
    numbers = np.arange(total)
    first = numbers - numbers // stride % size * stride
    return first[:, None] + stride * np.arange(size)


def _gathered(x: jax.Array, members: np.ndarray) -> jax.Array:
    """The values of all replicas of a group, along a new first axis."""
    if replica.count() == 1:
        return x[None]
    return replica.stacked(x)[jnp.asarray(members)[replica.index()]]


def _place(members: np.ndarray) -> jax.Array:
    """Which member of its group the replica is."""
    if replica.count() == 1:
        return jnp.int32(0)
    places = np.argmax(members == np.arange(len(members))[:, None], axis=1)
    return jnp.asarray(places)[replica.index()]


def _with_gradient(forward: Linear, backward: Linear) -> Linear:
    """A linear function whose gradient is another linear function."""
    call = jax.custom_vjp(forward)
    call.defvjp(lambda x: (forward(x), None), lambda _, g: (backward(g),))
    return call


@_register("ReplicatedAllGather")
def _all_gather(inputs: Inputs, attributes: Attributes) -> Inputs:
    """The values of all replicas; gradients are taken to be equal on all of them, so each replica keeps its part."""
    members = _members(attributes)
    return [_with_gradient(lambda x: _gathered(x, members), lambda g: g[_place(members)])(inputs[0])]


@_register("ReplicatedAllReduceTP")
def _all_reduce(inputs: Inputs, attributes: Attributes) -> Inputs:
    """The sum over replicas, in the forward pass alone or in the backward pass alone."""
    if attributes.get("op", "sum") not in ("sum", "add"):
        raise Error(f"ReplicatedAllReduceTP: op must be 'sum'. Received: {attributes['op']!r}.")
    members = _members(attributes)

    def total(x: jax.Array) -> jax.Array:
        return jnp.sum(_gathered(x, members), axis=0)

    def same(x: jax.Array) -> jax.Array:
        return x

    passes = (same, total) if attributes.get("backwards") else (total, same)
    return [_with_gradient(*passes)(inputs[0])]


@_register("ReplicatedAllToAll")
def _all_to_all(inputs: Inputs, attributes: Attributes) -> Inputs:
    """Row i goes to replica i; what comes from replica i becomes row i. Its own gradient."""
    members = _members(attributes)

    def exchanged(x: jax.Array) -> jax.Array:
        if len(x) != members.shape[1]:
            raise Error(f"ReplicatedAllToAll needs a row for each of {members.shape[1]} replicas. Received: {len(x)}.")
        return _gathered(x, members)[:, _place(members)]

    return [_with_gradient(exchanged, exchanged)(inputs[0])]


@_register("AutogradProxy")
def _proxy(inputs: Inputs, attributes: Attributes) -> Inputs:
    """The first input, with the gradient of the second."""
    value, proxy = inputs
    return [lax.stop_gradient(value) + (proxy - lax.stop_gradient(proxy))]


@_register("L1Distance")
def _l1_distance(inputs: Inputs, attributes: Attributes) -> Inputs:
    """Sums of absolute differences between all pairs of rows."""
    a, b = inputs
    return [jnp.sum(jnp.abs(a[:, None] - b[None]), axis=-1)]


@_register("L2Distance")
def _l2_distance(inputs: Inputs, attributes: Attributes) -> Inputs:
    """Euclidean distances between all pairs of rows; without gradient where two are equal, as in torch."""
    a, b = inputs
    squares = jnp.sum(jnp.square(a[:, None] - b[None]), axis=-1)
    apart = squares > 0
    return [jnp.where(apart, jnp.sqrt(jnp.where(apart, squares, 1)), 0)]
