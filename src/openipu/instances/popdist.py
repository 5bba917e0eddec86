"""What popdist's functions do: where this process stands among the others, and host communication with them."""

from collections.abc import Callable, Collection
from typing import Any

from openipu import environment, hardware
from openipu.errors import InstanceError
from openipu.instances import collectives, group, joining
from openipu.instances.membership import membership

# The name programs catch.
popdist_error = InstanceError

_DEFAULT = "default"
_communicators: dict[str, tuple[int, ...]] = {}


def isPopdistEnvSet() -> bool:
    """Whether a launcher started this process as an instance: poprun, or another that started several."""
    return environment.started_by_poprun() or membership().count > 1


def init() -> None:
    """Meets the other instances, the first time; a process that was started alone has nobody to meet."""
    joining.join()


def getNumInstances() -> int:
    """Processes that run the program; 1 without a launcher."""
    _check_uniform("getNumInstances")
    return membership().count


def getInstanceIndex() -> int:
    """Which of them this one is."""
    _check_uniform("getInstanceIndex")
    return membership().index


def getLocalInstanceIndex() -> int:
    """Which of the processes of its host this one is."""
    return membership().local_index


def getNumLocalReplicas() -> int:
    """Replicas of this instance."""
    return environment.local_replicas()


def getNumTotalReplicas() -> int:
    """Replicas of all instances."""
    if environment.started_by_poprun():
        return environment.total_replicas()
    return membership().count * environment.local_replicas()


def getReplicaIndexOffset() -> int:
    """The first replica of this instance among all replicas."""
    if environment.started_by_poprun():
        return environment.replica_offset()
    return membership().index * environment.local_replicas()


def getNumIpusPerReplica() -> int:
    """IPUs of a replica."""
    return environment.ipus_per_replica()


def checkNumIpusPerReplica(arg0: int, /) -> bool:
    """Whether replicas have so many IPUs."""
    return int(arg0) == environment.ipus_per_replica()


def getDeviceId(ipusPerReplica: int = 0) -> int:
    """The device of this instance: the group of IPUs that poprun chose, or else the next free one.

    Args:
      ipusPerReplica: IPUs of a replica; 0 for what the launcher says.
    """
    ipus = ipusPerReplica or environment.ipus_per_replica()
    if ipus != environment.ipus_per_replica() and isPopdistEnvSet():
        raise InstanceError(
            f"Replicas have {environment.ipus_per_replica()} IPUs (poprun --ipus-per-replica). "
            f"Received: ipusPerReplica={ipusPerReplica}."
        )
    chosen = environment.device_id()
    if chosen is not None:
        return chosen
    count = hardware.group_size(ipus * environment.local_replicas())
    system = hardware.current_system()
    same = [device for device in system.devices() if device.count == count]
    if membership().count > 1 and membership().local_index < len(same):
        return same[membership().local_index].id
    return system.device(count, hardware.attached_ipus()).id


def execute_on_instances(instances: Collection[int], func: Callable, *args: Any, **kwargs: Any) -> Any:
    """Calls a function on some instances, which act together inside of it; returns its result there, None elsewhere."""
    place = membership()
    unknown = sorted(set(instances) - set(range(place.count)))
    if unknown:
        raise InstanceError(f"Instances are numbers from 0 to {place.count - 1}. Received: {unknown}.")
    if place.index not in instances:
        return None
    if place.count == 1:
        return func(*args, **kwargs)
    joining.join()
    with group.only(instances):
        return func(*args, **kwargs)


def synchronize(communicator_id: str = _DEFAULT) -> None:
    """Waits until all instances are here; those of a communicator, if one is named."""
    if membership().count == 1:
        return
    joining.join()
    if communicator_id == _DEFAULT:
        collectives.synchronize("popdist.synchronize")
        return
    if communicator_id not in _communicators:
        raise InstanceError(
            f"There is no communicator {communicator_id!r}. Register it with popdist.registerCommunicator; known are: "
            f"{', '.join([_DEFAULT, *_communicators])}."
        )
    with group.only(_communicators[communicator_id]):
        collectives.synchronize("popdist.synchronize")


def registerDefaultBackend() -> None:
    """Nothing is to be loaded: instances talk through JAX's distributed runtime."""


def registerBackend(file_path_backend: str) -> None:
    """Refused: a shared object with another way of talking cannot be used."""
    raise InstanceError(
        f"Another backend than the default cannot be used: instances talk through JAX's distributed runtime. "
        f"Received: {file_path_backend!r}. Call popdist.init()."
    )


def initializeBackend() -> None:
    """As `init`."""
    init()


def finalizeBackend() -> None:
    """Parts from the other instances when the process ends; until then, this does nothing."""


def isBackendInitialized() -> bool:
    """Whether this process has met the other instances."""
    return joining.joined() is not None


def registerCommunicator(participants: Collection[int], communicator_id: str = _DEFAULT) -> None:
    """Names a set of instances; all instances must register the same."""
    joining.join()
    chosen = tuple(sorted(set(participants)))
    collectives.equal(f"communicator {communicator_id!r} of {list(chosen)}", "popdist.registerCommunicator")
    if communicator_id != _DEFAULT:
        _communicators[communicator_id] = chosen


def defaultCommunicatorId() -> str:
    """The communicator of all instances."""
    return _DEFAULT


def _check_uniform(name: str) -> None:
    if environment.started_by_poprun() and not environment.uniform_replicas():
        raise InstanceError(f"popdist.{name} needs instances with the same number of replicas each.")
