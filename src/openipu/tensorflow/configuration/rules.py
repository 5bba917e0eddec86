"""What is checked when an IPUConfig is applied: rules between options, and which IPUs it asks for."""

import logging
from collections.abc import Callable, Collection
from typing import Any

import attrs

from openipu import environment, hardware
from openipu.tensorflow.capture import placement
from openipu.tensorflow.configuration.enums import DeviceConnectionType, StochasticRoundingBehaviour

# The device has this many at most (reference, 1.1).
MAX_IO_TILES = 192

log = logging.getLogger("openipu.tensorflow")

_FLOATS = "floating_point_behaviour"
_INEFFECTIVE: dict[str, tuple[Callable[[Any], bool], str]] = {
    f"{_FLOATS}.set_all": (lambda c: c.floating_point_behaviour.set_all, "as nanoo, which it stands for among others"),
    f"{_FLOATS}.nanoo": (lambda c: c.floating_point_behaviour.nanoo, "an overflow of float16 gives infinity"),
    f"{_FLOATS}.esr=REPLICA_IDENTICAL_ONLY": (
        lambda c: c.floating_point_behaviour.esr is StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY,
        "with several replicas float16 is rounded to the nearest",
    ),
    "norms.experimental.distributed_batch_norm_replica_group_size": (
        lambda c: c.norms.experimental.distributed_batch_norm_replica_group_size > 1,
        "every replica has the statistics of its own batches",
    ),
}

OFFLINE = (DeviceConnectionType.NEVER, DeviceConnectionType.PRE_COMPILE)


def connection_type(config: Any) -> DeviceConnectionType:
    """When to attach: as the config says, unless TF_POPLAR_FLAGS forces ON_DEMAND."""
    return DeviceConnectionType.ON_DEMAND if environment.poplar_flags().use_on_demand else config.device_connection.type


def attaches(config: Any) -> bool:
    """Whether the IPUs must be free right away: others matter to nobody who waits, only compiles or runs the model."""
    return connection_type(config) is DeviceConnectionType.ALWAYS and not environment.running_on_ipu_model()


def patience(config: Any) -> hardware.Wait | None:
    """How to wait for busy IPUs: as TF_POPLAR_FLAGS says for ON_DEMAND, else not at all."""
    if connection_type(config) is not DeviceConnectionType.ON_DEMAND:
        return None
    flags = environment.poplar_flags()
    return hardware.Wait(flags.on_demand_device_poll_time / 1000, flags.on_demand_device_timeout / 1000)


def check(config: Any) -> None:
    """Raises an error for the first rule that `config` breaks; turns single numbers of IPUs into lists."""
    # The variables are read here for the first time, so a wrong flag is refused before anything is attached.
    environment.poplar_flags()
    environment.poplar_engine_options()
    _check_selection(config)
    _check_tiles_and_norms(config)
    _check_versions(config)
    _check_processes(config)
    _check_poplar_options(config)


def warn_of_ineffective(config: Any) -> None:
    """Says which options would change what programs compute on hardware, and do not here."""
    wanted = [f"{name} ({what})" for name, (effect, what) in _INEFFECTIVE.items() if effect(config)]
    if wanted:
        log.warning("On virtual IPUs these options have no effect: %s.", "; ".join(wanted))


def rounds_at_random(config: Any, replicas: int) -> bool:
    """Whether casts to float16 are rounded at random on each of so many replicas."""
    floats = config.floating_point_behaviour
    if floats.set_all or floats.esr is StochasticRoundingBehaviour.ON:
        return True
    return floats.esr is StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY and replicas == 1


def find_devices(config: Any, taken: Collection[int]) -> tuple[hardware.Device, ...]:
    """The groups of IPUs for `/device:IPU:0`, `/device:IPU:1`, …

    Args:
      config: a checked config.
      taken: IPUs that others hold.

    Returns:
      One group per TensorFlow device; a single IPU if the config selects none.
    """
    system = _system(config)
    if config.select_ipus:
        return tuple(system.by_id(device_id) for device_id in config.select_ipus)
    devices: list[hardware.Device] = []
    busy = set(taken)
    for ordinal, count in enumerate(config.auto_select_ipus or [1]):
        purpose = f"the TensorFlow virtual device {placement.device_name(ordinal)}"
        devices.append(system.device(count, busy, purpose))
        busy.update(devices[-1].ipus)
    return tuple(devices)


def _system(config: Any) -> hardware.System:
    system = hardware.current_system()
    if environment.running_on_ipu_model():
        target = hardware.target_for(config.ipu_model.version)
        tiles = config.ipu_model.tiles_per_ipu or environment.poplar_flags().ipu_model_tiles
        return attrs.evolve(system, target=attrs.evolve(target, tiles=tiles) if tiles > 0 else target)
    if connection_type(config) in OFFLINE:
        # Nothing is attached, so a laptop may compile for a pod.
        count = max(system.count, sum(config.auto_select_ipus))
        target = system.target
        if target.architecture != config.device_connection.version:
            target = hardware.target_for(config.device_connection.version)
        return hardware.System(f"{count}x{target.name}", target, count)
    return system


def _check_selection(config: Any) -> None:
    for name in ("auto_select_ipus", "select_ipus"):
        if type(getattr(config, name)) is int:
            setattr(config, name, [getattr(config, name)])
    if config.auto_select_ipus and config.select_ipus:
        raise Exception("Only one of `auto_select_ipus` and `select_ipus` can be set.")
    if len(set(config.select_ipus)) != len(config.select_ipus):
        raise ValueError("All MultiIPU indices in `select_ipus` must be unique.")
    if config.select_ipus and environment.running_on_ipu_model():
        raise Exception(
            "When using the IPUModel, the devices to attach to can only be specified with `auto_select_ipus`."
        )


def _check_tiles_and_norms(config: Any) -> None:
    group = config.norms.experimental.distributed_batch_norm_replica_group_size
    tiles = config.io_tiles.num_io_tiles
    if tiles > 0 and group > 1:
        raise ValueError(
            "norms.experimental.distributed_batch_norm_replica_group_size is not supported with I/O tiles."
        )
    if config.io_tiles.place_ops_on_io_tiles and tiles == 0:
        raise ValueError("Cannot place ops on I/O tiles when io_tiles.num_io_tiles == 0")
    if not 0 <= tiles <= MAX_IO_TILES:
        raise ValueError(
            f"io_tiles.num_io_tiles must be between 0 and {MAX_IO_TILES}. Received: io_tiles.num_io_tiles={tiles}."
        )
    if group < 1:
        raise ValueError("norms.experimental.distributed_batch_norm_replica_group_size must be at least 1.")


def _check_versions(config: Any) -> None:
    if connection_type(config) in OFFLINE:
        if not config.device_connection.version:
            raise ValueError(
                "device_connection.version must be set when device_connection.type is "
                "DeviceConnectionType.NEVER or DeviceConnectionType.PRE_COMPILE"
            )
        hardware.target_for(config.device_connection.version)
    if environment.running_on_ipu_model():
        if not config.ipu_model.version:
            raise ValueError("ipu_model.version must be set when using the IPUModel.")
        hardware.target_for(config.ipu_model.version)


def _check_processes(config: Any) -> None:
    distribution = config.experimental.multi_replica_distribution
    if distribution.process_count <= 0:
        return
    if not 0 <= distribution.process_index < distribution.process_count:
        raise ValueError(
            "experimental.multi_replica_distribution.process_index must be in the range "
            "[0, experimental.multi_replica_distribution.process_count)."
        )
    if environment.running_on_ipu_model():
        raise Exception("Multi-replica distribution is not supported on the IPU model.")


def _check_poplar_options(config: Any) -> None:
    # Items are put into these dictionaries one by one, without passing the check on assignment.
    for name, options in config.to_dict().items():
        if not isinstance(options, dict):
            continue
        for key, value in options.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError(
                    f"{name} must hold text values by name. Received: {name}[{key!r}]={value!r}. "
                    f'Write {name}["{key}"] = "{value}".'
                )
    environment.warn_of_unknown_keys(config.compilation_poplar_options, "compilation_poplar_options")
