"""`popdist.tensorflow`: what a launcher decides, in a configuration."""

from typing import TypeVar

from openipu.instances import popdist
from openipu.tensorflow.configuration.system import IPUConfig

Config = TypeVar("Config", bound=IPUConfig)


def set_ipu_config(config: Config, ipus_per_replica: int | None = None, configure_device: bool = True) -> Config:
    """Puts this instance's device and its place among the others into a configuration, and returns that.

    Args:
      config: what is changed.
      ipus_per_replica: must be what the launcher says; None takes it from there.
      configure_device: whether the instance's IPUs are selected as well.
    """
    if not isinstance(config, IPUConfig):
        raise TypeError(f"config must be an IPUConfig. Received: {type(config).__name__}.")
    if configure_device:
        config.select_ipus = [popdist.getDeviceId(ipus_per_replica or 0)]
    return set_place(config)


def set_place(config: Config) -> Config:
    """Puts the place of this instance among the others into a configuration, and returns that."""
    distribution = config.experimental.multi_replica_distribution
    distribution.process_count = popdist.getNumInstances()
    distribution.process_index = popdist.getInstanceIndex()
    return config
