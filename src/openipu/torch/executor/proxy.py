"""How an executor shows the parameters of its module."""

from collections.abc import Callable
from typing import Any

import torch

from openipu.torch.capture.grouping import ReplicaGrouping
from openipu.torch.enums import CommGroupType, VariableRetrievalMode
from openipu.torch.exceptions import Error


class ParameterProxy:
    """A parameter of the top-level module, as an executor shows it."""

    def __init__(self, parameter: torch.nn.Parameter, name: str, group: Callable[[str, ReplicaGrouping], None]) -> None:
        self._parameter = parameter
        self._name = name
        self._group = group

    def replicaGrouping(
        self, comm_group_type: CommGroupType, shards: int, variable_retrieval_mode: VariableRetrievalMode
    ) -> None:
        """Lets only groups of replicas share the parameter, whose first dimension is that of the groups.

        Args:
          comm_group_type: which replicas form a group.
          shards: replicas in a group.
          variable_retrieval_mode: which replicas' values come home.
        """
        if not self._parameter.dim():
            raise Error("Scalars cannot be passed as per-replica weight tensor values")
        self._group(self._name, ReplicaGrouping(comm_group_type, shards, variable_retrieval_mode))

    def __getattr__(self, attr: str) -> Any:
        return getattr(self._parameter, attr)

    def __repr__(self) -> str:
        return repr(self._parameter)
