"""What an instance finds in its environment."""

import os
import shlex
from collections.abc import Mapping, Sequence

from openipu import environment
from openipu.launch.errors import LaunchError
from openipu.launch.topology import Instance, Topology


def of_instance(topology: Topology, instance: Instance, device: int | None, coordinator: str) -> dict[str, str]:
    """The variables that tell an instance its place.

    Args:
      topology, instance: its place.
      device: the group of IPUs that was chosen for it; None for none.
      coordinator: where the instances meet.
    """
    total = len(topology.instances)
    made: dict[str, int | str] = {
        "POPDIST_NUM_TOTAL_REPLICAS": topology.replicas,
        "POPDIST_NUM_LOCAL_REPLICAS": instance.replicas,
        "POPDIST_NUM_IPUS_PER_REPLICA": topology.ipus_per_replica,
        "POPDIST_REPLICA_INDEX_OFFSET": instance.offset,
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": 1,
        "POPDIST_LOCAL_INSTANCE_INDEX": instance.local_index,
        # Programs and libraries that know MPI only look for these.
        "OMPI_COMM_WORLD_SIZE": total,
        "OMPI_COMM_WORLD_RANK": instance.index,
        "OMPI_COMM_WORLD_LOCAL_SIZE": instance.local_count,
        "OMPI_COMM_WORLD_LOCAL_RANK": instance.local_index,
    }
    if device is not None:
        made["OPENIPU_DEVICE_ID"] = device
    if total > 1:
        made["OPENIPU_COORDINATOR"] = coordinator
    return {name: str(value) for name, value in made.items()}


def of_cache(folder: str | None) -> dict[str, str]:
    """The variables that let all instances share executables; a program's own settings go before."""
    if folder is None:
        return {}
    path = os.path.abspath(folder)
    shared = {"POPDIST_EXECUTABLE_CACHE_PATH": path}
    return shared if environment.poptorch_cache_dir() else {**shared, "POPTORCH_CACHE_DIR": path}


def of_mpi_arguments(text: str) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """What arguments for mpirun mean: variables to set (`-x`), parameters (`--mca`), and the rest, which is unused."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise LaunchError(f"These arguments for mpirun cannot be read: {text!r} ({error}).") from None
    variables: dict[str, str] = {}
    parameters: dict[str, str] = {}
    rest = []
    given = iter(words)
    for word in given:
        if word == "-x":
            name, equals, value = next(given, "").partition("=")
            if not name:
                raise LaunchError(f"-x must be followed by the name of a variable. Received: {text!r}.")
            here = value if equals else environment.value_of(name)
            if here is not None:
                variables[name] = here
        elif word in ("--mca", "-mca"):
            name = next(given, "")
            parameters[name] = next(given, "")
        else:
            rest.append(word)
    return variables, parameters, rest


def merged(*layers: Mapping[str, str]) -> dict[str, str]:
    """Variables of all layers; later ones win."""
    return {name: value for layer in layers for name, value in layer.items()}


def joined(arguments: Sequence[str]) -> str:
    """Several options that accumulate, as one text."""
    return " ".join(arguments)
