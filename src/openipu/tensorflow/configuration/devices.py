"""What the front end asks of the configured virtual IPUs: how many, attached or not, seeds."""

import logging

from openipu import environment, hardware
from openipu import instances as processes
from openipu.compiler import Traps
from openipu.runtime import forget_compiled_programs
from openipu.tensorflow.configuration import rules, seeds, system
from openipu.tensorflow.configuration.enums import DeviceConnectionType

log = logging.getLogger("openipu.tensorflow")


# What was compiled for devices that are gone must not answer for those that come.
system.on_reset(forget_compiled_programs)


def next_seeds(ordinal: int, replicas: int) -> list[int]:
    """The seeds of the next execution, one for every replica."""
    if "seed" in environment.poplar_flags().synthetic_categories:
        return [0] * replicas
    drawn = seeds.draw(ordinal)
    if drawn.identical_replicas:
        return [drawn.value] * replicas
    return [drawn.value + replica for replica in range(replicas)]


def ipus(ordinal: int) -> int:
    """IPUs of the device `/device:IPU:<ordinal>`."""
    return len(system.configured_devices()[ordinal].ipus)


def replicas(ordinal: int, shards: int) -> int:
    """Copies of a model of `shards` IPUs that fit the device: it is always filled."""
    available = ipus(ordinal)
    needed = hardware.group_size(shards)
    if available < needed:
        raise ValueError(
            f"Current device has {available} IPUs attached, however the current model requires a multiple of "
            f"{needed} IPUs."
        )
    copies = available // needed
    if copies > 1:
        log.info("Automatically replicating the TensorFlow model by a factor of %d.", copies)
    return copies


def instances(of_strategy: int = 1) -> int:
    """Processes that run programs together: as the configuration says, or else the strategy.

    Args:
      of_strategy: what the strategy says.
    """
    config = system.active_config()
    distribution = config.experimental.multi_replica_distribution if config is not None else None
    if distribution is None or distribution.process_count < 2:
        return of_strategy
    processes.join(distribution.process_index, distribution.process_count)
    return len(processes.current())


def require_attached(ordinal: int) -> None:
    """Attach to the device if that was left to the first execution; refuse if it must never be."""
    if not system.is_attached(ordinal) and not precompiles(ordinal):
        system.attach_device(ordinal)


def precompiles(ordinal: int) -> bool:
    """Whether programs are compiled for the cache and executions answered with zeros."""
    return system.device_connection_type(ordinal) is DeviceConnectionType.PRE_COMPILE


def traps() -> Traps:
    """Which invalid numbers stop a program. What gives an infinity, an overflow or a division by zero, is not told."""
    config = system.active_config()
    if config is None:
        return Traps()
    wanted = config.floating_point_behaviour
    return Traps(wanted.inv or wanted.set_all, wanted.div0 or wanted.oflo or wanted.set_all)


def stochastic_rounding(replicas: int) -> bool:
    """Whether casts to float16 are rounded at random on each of so many replicas."""
    config = system.active_config()
    return config is not None and rules.rounds_at_random(config, replicas)


def active_config() -> system.IPUConfig | None:
    """The configuration that programs are compiled under, if there is one."""
    return system.active_config()
