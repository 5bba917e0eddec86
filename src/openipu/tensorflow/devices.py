"""What the front end asks of the configured virtual IPUs: how many, attached or not, seeds."""

import logging
from collections.abc import Callable

from openipu import environment
from openipu.tensorflow import seed
from openipu.tensorflow.ipu import config
from openipu.tensorflow.ipu.config_enums import DeviceConnectionType

log = logging.getLogger("openipu.tensorflow")


def on_reset(callback: Callable[[], None]) -> None:
    """Call back when the configuration is reset: compiled programs are to be forgotten."""
    config.on_reset(callback)


def next_seeds(ordinal: int, replicas: int) -> list[int]:
    """The seeds of the next execution, one for every replica."""
    if "seed" in environment.poplar_flags().synthetic_categories:
        return [0] * replicas
    drawn = seed.draw(ordinal)
    if drawn.identical_replicas:
        return [drawn.value] * replicas
    return [drawn.value + replica for replica in range(replicas)]


def ipus(ordinal: int) -> int:
    """IPUs of the device `/device:IPU:<ordinal>`."""
    return len(config.configured_devices()[ordinal].ipus)


def replicas(ordinal: int, shards: int) -> int:
    """Copies of a model of `shards` IPUs that fit the device: it is always filled."""
    available = ipus(ordinal)
    needed = 1 << (shards - 1).bit_length()
    if available < needed:
        raise ValueError(
            f"Current device has {available} IPUs attached, however the current model requires a multiple of "
            f"{needed} IPUs."
        )
    copies = available // needed
    if copies > 1:
        log.info("Automatically replicating the TensorFlow model by a factor of %d.", copies)
    return copies


def require_attached(ordinal: int) -> None:
    """Attach to the device if that was left to the first execution; refuse if it must never be."""
    if not precompiles(ordinal):
        config.attach_device(ordinal)


def precompiles(ordinal: int) -> bool:
    """Whether programs are compiled for the cache and executions answered with zeros."""
    return config.device_connection_type(ordinal) is DeviceConnectionType.PRE_COMPILE


def active_config() -> config.IPUConfig | None:
    """The configuration that programs are compiled under, if there is one."""
    return config.active_config()
