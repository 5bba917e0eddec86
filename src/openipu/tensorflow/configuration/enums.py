"""The enums whose members are values of IPUConfig options."""

import enum


class SelectionOrder(enum.Enum):
    """How shard indices map to the IPUs of a device."""

    AUTO = 0
    ZIGZAG = 1
    SNAKE = 2
    HOOF = 3


class ExecutionProfileType(enum.Enum):
    """What an execution profile covers; no option uses it any more."""

    NO_PROFILE = 0
    DEVICE_PROFILE = 1
    IPU_PROFILE = 2
    TILE_PROFILE = 3


class DeviceConnectionType(enum.Enum):
    """When a program attaches to its IPUs.

    ALWAYS: when the system is configured.
    ON_DEMAND: at the first execution.
    PRE_COMPILE: never; programs are compiled and stored, executions give zeros.
    NEVER: never; programs are compiled, executions are errors.
    """

    ALWAYS = 0
    ON_DEMAND = 1
    PRE_COMPILE = 3
    NEVER = 2


class MergeRemoteBuffersBehaviour(enum.Enum):
    """Whether remote buffers of the same shape become one."""

    NO_MERGING = 0
    MERGE = 1
    IF_BENEFICIAL = 2


class SchedulingAlgorithm(enum.Enum):
    """How the order of operations is found."""

    CHOOSE_BEST = 0
    CLUSTERING = 1
    POST_ORDER = 2
    LOOK_AHEAD = 3
    SHORTEST_PATH = 4


class StochasticRoundingBehaviour(enum.Enum):
    """Where float16 results are rounded at random: nowhere, everywhere, or only where all replicas agree."""

    OFF = 0
    ON = 1
    REPLICA_IDENTICAL_ONLY = 2

    @staticmethod
    def from_bool(value: bool) -> "StochasticRoundingBehaviour":
        """ON for a true value, OFF otherwise."""
        return StochasticRoundingBehaviour.ON if value else StochasticRoundingBehaviour.OFF
