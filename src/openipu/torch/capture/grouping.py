"""Weights that are equal within groups of replicas only: one slice of the host's parameter for every group."""

import copy
from collections.abc import Mapping, Sequence

import attrs
import jax
import jax.numpy as jnp
import torch
from attrs.validators import instance_of

from openipu.program import replica
from openipu.torch.boundary import own_modules, own_parameters, set_own_modules, set_own_parameters
from openipu.torch.capture.flat_module import PREFIX
from openipu.torch.enums import CommGroupType, VariableRetrievalMode
from openipu.torch.exceptions import Error, UnsupportedError


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
      groups: the group of every replica that runs the program.
      count: how many groups there are, those of other processes' replicas included.
    """

    groups: tuple[int, ...]
    count: int

    def of(self, replicas: Sequence[int]) -> "Grouped":
        """The same for some of the replicas."""
        return Grouped(tuple(self.groups[replica] for replica in replicas), self.count)

    def slice(self, value: jax.Array) -> jax.Array:
        """The slice of the replica that is being traced."""
        if replica.count() == 1:
            return value[self.groups[0]]
        return value[jnp.asarray(self.groups)[replica.index()]]


def resolve(
    model: torch.nn.Module,
    asked: Mapping[str, ReplicaGrouping | tuple],
    replicas: int,
    processes: int = 1,
    members: Sequence[int] = (0,),
) -> tuple[torch.nn.Module, dict[str, Grouped]]:
    """The module that one replica sees, and its grouped parameters by name.

    Groups are those of the replicas of all processes, and the host's parameter has a slice for each of them, on every
    process the same.

    Args:
      model: the module; it is left as it is.
      asked: groupings by the names of its parameters.
      replicas: how many there are in a process.
      processes: how many processes have replicas.
      members: the processes that run the program, in order.
    """
    wanted = {name: one if isinstance(one, ReplicaGrouping) else ReplicaGrouping(*one) for name, one in asked.items()}
    of_all = {
        n: _grouped(n, one, replicas, processes) for n, one in wanted.items() if one.kind is not CommGroupType.All
    }
    running = [member * replicas + own for member in members for own in range(replicas)]
    found = {n: attrs.evolve(g, groups=tuple(g.groups[r] for r in running)) for n, g in of_all.items()}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    twin = model
    for name, grouped in found.items():
        if name not in parameters:
            raise Error(f"There is no parameter {name} to group replicas by. The model has: {sorted(parameters)}.")
        whole = parameters[name]
        if whole.shape[0] != grouped.count:
            raise Error(
                f"The first dimension of {name} must be the number of its replica groups, {grouped.count}. Received a "
                f"parameter of shape {list(whole.shape)}."
            )
        twin = _replaced(twin, name.split("."), torch.nn.Parameter(whole.detach()[0].clone(), whole.requires_grad))
    return twin, {PREFIX + name: grouped for name, grouped in found.items()}


def _replaced(module: torch.nn.Module, path: list[str], parameter: torch.nn.Parameter) -> torch.nn.Module:
    """A twin of a module with one parameter replaced; it shares all else."""
    twin, (name, *rest) = copy.copy(module), path
    if not rest:
        set_own_parameters(twin, {**own_parameters(module), name: parameter})
        return twin
    inner = own_modules(module)[name]
    assert inner is not None
    set_own_modules(twin, {**own_modules(module), name: _replaced(inner, rest, parameter)})
    return twin


def _grouped(name: str, asked: ReplicaGrouping, local: int, processes: int) -> Grouped:
    """The groups of all replicas of all processes."""
    shards, replicas = 1 if asked.kind is CommGroupType.NoGrouping else asked.shards, local * processes
    if shards < 1 or replicas % shards:
        times = f" * {processes} processes" if processes > 1 else ""
        raise Error(
            f"The replicas of a group of {name} must divide Options.replicationFactor({local}){times}. Received: "
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
