"""How an executor shows the parameters of its module."""

from typing import Any, NoReturn

import torch

from openipu.errors import UnsupportedError
from openipu.torch.exceptions import Error


class ParameterProxy:
    """A parameter of the top-level module, as an executor shows it."""

    def __init__(self, parameter: torch.nn.Parameter, name: str) -> None:
        self._parameter = parameter
        self._name = name

    def replicaGrouping(self, comm_group_type: Any, shards: int, variable_retrieval_mode: Any) -> NoReturn:
        """Refused: weights are equal on all replicas."""
        if not self._parameter.dim():
            raise Error("Scalars cannot be passed as per-replica weight tensor values")
        raise UnsupportedError(
            f"replicaGrouping of {self._name} is not supported: weights are equal on all replicas. Leave it out."
        )

    def __getattr__(self, attr: str) -> Any:
        return getattr(self._parameter, attr)

    def __repr__(self) -> str:
        return repr(self._parameter)
