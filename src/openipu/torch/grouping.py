"""Weights that are equal within groups of replicas only: one slice of the host's parameter for every group."""

import copy
from collections.abc import Mapping

import attrs
import jax
import jax.numpy as jnp
import torch
from attrs.validators import instance_of
from jax import lax

from openipu.errors import UnsupportedError
from openipu.program import replica
from openipu.torch.entry import PREFIX
from openipu.torch.enums import CommGroupType, VariableRetrievalMode
from openipu.torch.exceptions import Error


@attrs.frozen
class ReplicaGrouping:
    """What `executor.<parameter>.replicaGrouping` asked for.

    Attributes:
      kind: which replicas form a group.
      shards: replicas in a group.
      retrieval: which replicas' values come home.
    """

    kind: CommGroupType = attrs.field(validator=instance_of(CommGroupType))
    shards: int = attrs.field(validator=instance_of(int))
    retrieval: VariableRetrievalMode = attrs.field(validator=instance_of(VariableRetrievalMode))


@attrs.frozen
class Grouped:
    """The slice of a parameter that each replica uses.

    Attributes:
      groups: the group of every replica.
      count: how many groups there are.
    """

    groups: tuple[int, ...]
    count: int

    def slice(self, value: jax.Array) -> jax.Array:
        """The slice of the replica that is being traced."""
        if replica.count() == 1:
            return value[0]
        return value[jnp.asarray(self.groups)[lax.axis_index(replica.AXIS)]]


def resolve(
    model: torch.nn.Module, asked: Mapping[str, ReplicaGrouping], replicas: int
) -> tuple[torch.nn.Module, dict[str, Grouped]]:
    """The module that one replica sees, and its grouped parameters by name.

    Args:
      model: the module; it is left as it is.
      asked: groupings by the names of its own parameters.
      replicas: how many there are.
    """
    found = {name: _grouped(name, one, replicas) for name, one in asked.items() if one.kind is not CommGroupType.All}
    if not found:
        return model, {}
    twin = copy.copy(model)
    own = dict(model._parameters)
    for name, grouped in found.items():
        whole = own[name]
        assert whole is not None
        if whole.shape[0] != grouped.count:
            raise Error(
                f"The first dimension of {name} must be the number of its replica groups, {grouped.count}. Received a "
                f"parameter of shape {list(whole.shape)}."
            )
        own[name] = torch.nn.Parameter(whole.detach()[0].clone(), whole.requires_grad)
    # Not through the module's own ways, which would write into the dictionary it shares with the user's.
    object.__setattr__(twin, "_parameters", own)
    return twin, {PREFIX + name: grouped for name, grouped in found.items()}


def _grouped(name: str, asked: ReplicaGrouping, replicas: int) -> Grouped:
    shards = 1 if asked.kind is CommGroupType.NoGrouping else asked.shards
    if shards < 1 or replicas % shards:
        raise Error(
            f"The replicas of a group of {name} must divide Options.replicationFactor({replicas}). Received: "
            f"shards={asked.shards}."
        )
    count = replicas // shards
    if asked.retrieval is VariableRetrievalMode.AllReplicas and count != replicas:
        raise UnsupportedError(
            f"VariableRetrievalMode.AllReplicas of {name} is not supported for groups of several replicas: their "
            "values are equal. Use VariableRetrievalMode.OnePerGroup."
        )
    numbers = range(replicas)
    orthogonal = asked.kind is CommGroupType.Orthogonal
    return Grouped(tuple(r % count if orthogonal else r // shards for r in numbers), count)
