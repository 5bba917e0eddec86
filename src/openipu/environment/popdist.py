"""What a launcher tells the instances it starts: poprun's variables, and those of MPI and SLURM."""

import os

from openipu.environment.variable import declare, integer

POPDIST = "Many instances"

_total = declare(
    "POPDIST_NUM_TOTAL_REPLICAS", POPDIST, "Replicas of all instances; set by `poprun`.", values="a number"
)
_local = declare("POPDIST_NUM_LOCAL_REPLICAS", POPDIST, "Replicas of one instance; set by `poprun`.", values="a number")
_offset = declare(
    "POPDIST_REPLICA_INDEX_OFFSET", POPDIST, "The first replica of this instance; set by `poprun`.", values="a number"
)
_ipus = declare("POPDIST_NUM_IPUS_PER_REPLICA", POPDIST, "IPUs of a replica; set by `poprun`.", values="a number")
_uniform = declare(
    "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE",
    POPDIST,
    "Whether all instances have as many replicas; set by `poprun`.",
    values="1",
)
_local_instance = declare(
    "POPDIST_LOCAL_INSTANCE_INDEX", POPDIST, "Which instance of its host this is; set by `poprun`.", values="a number"
)
_cache = declare(
    "POPDIST_EXECUTABLE_CACHE_PATH",
    POPDIST,
    "Where instances share executables, unless the front end's own variable says so; set by `poprun`.",
    values="a directory; unset for none",
)
_coordinator = declare(
    "OPENIPU_COORDINATOR",
    POPDIST,
    "Where instance 0 coordinates all instances. Set by `poprun`; other launchers need it only where JAX does not "
    "find the address itself.",
    values="`host:port`",
)
_device = declare(
    "OPENIPU_DEVICE_ID",
    POPDIST,
    "The group of IPUs that `poprun` chose for this instance.",
    values="a device ID, as `gc-inventory` lists them",
)

_FORWARDED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV")
_PREFIXES = ("OPENIPU_", "POPLAR_", "POPTORCH_", "TF_", "KERAS_", "JAX_", "XLA_", "IPUOF_")

# The size and the place of a process among others, as launchers name them: all, this one, those of its host, and which
# of them.
LAUNCHERS = {
    "Open MPI": (
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
    ),
    # Also Intel's. Before SLURM: its launcher may start one helper on each host with srun.
    "MPICH": ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    "SLURM": ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_LOCALID"),
}


def started_by_poprun() -> bool:
    """Whether this process is an instance that poprun started."""
    return _total.is_given()


def total_replicas() -> int:
    """Replicas of all instances (POPDIST_NUM_TOTAL_REPLICAS)."""
    return integer(_total.name, 1)


def local_replicas() -> int:
    """Replicas of this instance (POPDIST_NUM_LOCAL_REPLICAS)."""
    return integer(_local.name, 1)


def replica_offset() -> int:
    """The first replica of this instance (POPDIST_REPLICA_INDEX_OFFSET)."""
    return integer(_offset.name, 0)


def ipus_per_replica() -> int:
    """IPUs of a replica (POPDIST_NUM_IPUS_PER_REPLICA)."""
    return integer(_ipus.name, 1)


def uniform_replicas() -> bool:
    """Whether all instances have as many replicas (POPDIST_UNIFORM_REPLICAS_PER_INSTANCE)."""
    return bool(integer(_uniform.name, 1))


def local_instance() -> int:
    """Which instance of its host this is (POPDIST_LOCAL_INSTANCE_INDEX)."""
    return integer(_local_instance.name, 0)


def shared_cache_dir() -> str:
    """Where instances share executables (POPDIST_EXECUTABLE_CACHE_PATH); empty for nowhere."""
    return _cache.read()


def coordinator() -> str:
    """Where instance 0 coordinates all instances (OPENIPU_COORDINATOR); empty when nobody said."""
    return _coordinator.read()


def device_id() -> int | None:
    """The group of IPUs of this instance (OPENIPU_DEVICE_ID); None when any will do."""
    return integer(_device.name, 0) if _device.is_given() else None


def launched() -> tuple[str, int, int, int, int] | None:
    """The launcher, the number of processes, which this one is, and the same within its host; None without one."""
    for name, (size, rank, local_size, local_rank) in LAUNCHERS.items():
        if os.environ.get(size, "").strip() and os.environ.get(rank, "").strip():
            # SLURM writes "2(x3)" for three hosts with two tasks each.
            here = os.environ.get(local_size, "1").split("(")[0].split(",")[0]
            return name, integer(size, 1), integer(rank, 0), int(here or 1), integer(local_rank, 0)
    return None


def slurm_nodes() -> str:
    """The hosts of an allocation of SLURM, as it lists them; empty outside of one."""
    return os.environ.get("SLURM_JOB_NODELIST", "").strip()


def in_slurm_job() -> bool:
    """Whether this process belongs to a job of SLURM."""
    return bool(os.environ.get("SLURM_JOB_ID", "").strip())


def remote_shell() -> tuple[str, str]:
    """The command for other hosts and its arguments, as Open MPI's users name them in the environment."""
    return os.environ.get("OMPI_MCA_plm_rsh_agent", ""), os.environ.get("OMPI_MCA_plm_rsh_args", "")  # noqa: SIM112


def forwarded() -> dict[str, str]:
    """What of this process' environment goes to instances on other hosts without being asked for."""
    return {name: value for name, value in os.environ.items() if name in _FORWARDED or name.startswith(_PREFIXES)}


def value_of(name: str) -> str | None:
    """The value of any variable, for options that hand it on to instances; None if it is not set."""
    return os.environ.get(name)
