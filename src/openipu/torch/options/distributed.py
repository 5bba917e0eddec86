"""`popdist.poptorch.Options`: options of one instance of many, whose place is the launcher's to say."""

from typing import NoReturn

from openipu import environment
from openipu.instances import membership
from openipu.torch.options.base import OptionsDict
from openipu.torch.options.groups import _DistributedOptions
from openipu.torch.options.options import Options as _Options


class Options(_Options):
    """Options with replicas, process and device as the launcher says; what it decides cannot be set.

    Args:
      ipus_per_replica: must be what the launcher says; None takes it from there.
    """

    def __init__(self, ipus_per_replica: int | None = None) -> None:
        super().__init__()
        expected = environment.ipus_per_replica()
        if ipus_per_replica is not None and ipus_per_replica != expected and environment.started_by_poprun():
            raise RuntimeError(
                f"Replicas have {expected} IPUs, as poprun --ipus-per-replica says. "
                f"Received: ipus_per_replica={ipus_per_replica}."
            )
        place = membership()
        self._distributed = _Owned(place.index, place.count)
        self.set(replication_factor=environment.local_replicas())

    def useIpuId(self, ipu_id: int) -> NoReturn:
        """Refused: the launcher decides."""
        _refuse("useIpuId")

    def replicationFactor(self, replication_factor: int) -> NoReturn:
        """Refused: the launcher decides."""
        _refuse("replicationFactor")


class _Owned(_DistributedOptions):
    """The place of a process, which is not the program's to change."""

    def __init__(self, process_id: int, num_processes: int) -> None:
        OptionsDict.__init__(
            self, num_distributed_processes=num_processes, distributed_process_id=process_id, ipuof_configs={}
        )

    def disable(self) -> NoReturn:
        """Refused: the launcher decides."""
        _refuse("Distributed.disable")

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> NoReturn:
        """Refused: the launcher decides."""
        _refuse("Distributed.setEnvVarNames")

    def configureProcessId(self, process_id: int, num_processes: int) -> NoReturn:
        """Refused: the launcher decides."""
        _refuse("Distributed.configureProcessId")


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(f"Cannot call `{name}` with popdist.poptorch.Options")
