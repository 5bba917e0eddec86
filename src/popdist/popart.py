"""popdist.popart on openipu: PopART programs cannot run here, so only what needs no session is more than a name."""

from typing import Any, NoReturn

import popdist
from openipu.errors import UnsupportedError

__all__ = ["configureSessionOptions", "getDevice"]


def configureSessionOptions(opts: Any) -> None:
    """Says in PopART's session options how the replicas of all instances are spread."""
    opts.enableReplicatedGraphs = popdist.getNumLocalReplicas() > 1
    opts.replicatedGraphCount = popdist.getNumLocalReplicas()
    opts.enableDistributedReplicatedGraphs = popdist.getNumInstances() > 1
    opts.globalReplicaOffset = popdist.getReplicaIndexOffset()
    opts.globalReplicationFactor = popdist.getNumTotalReplicas()


def getDevice(ipus_per_replica: int | None = None, connectionType: Any = None) -> NoReturn:
    """Refused: there are no PopART devices."""
    raise UnsupportedError(
        "popdist.popart.getDevice is not supported: openipu has no PopART sessions that a device could be for. "
        "Use popdist.poptorch or popdist.tensorflow."
    )
