"""IPUConfig, and the configuration of the virtual IPUs that it is applied to."""

import copy
import logging
import threading
from collections.abc import Callable
from typing import Any

import attrs

from openipu import hardware, instances
from openipu.environment import running_on_ipu_model
from openipu.tensorflow.capture import placement
from openipu.tensorflow.configuration import rules
from openipu.tensorflow.configuration.enums import DeviceConnectionType
from openipu.tensorflow.configuration.options import OPTIONS
from openipu.tensorflow.configuration.tree import Config, deprecate_config_attribute

logger = logging.getLogger(__name__)


@deprecate_config_attribute("optimizations.enable_fast_math", "Use optimizations.math.fast instead.")
class IPUConfig(Config):
    """Every option of the IPU system; set the attributes, then call `configure_ipu_system`."""

    _table = OPTIONS

    def configure_ipu_system(self, device: str = "cpu") -> None:
        """Applies this config, in place of any other that is active."""
        configure_ipu_system(self, device)


@attrs.frozen
class IpuOptions:
    """What `get_ipu_config` tells about one TensorFlow IPU device.

    The original returns a protocol buffer; programs that look into it want the options and the device.

    Args:
      ordinal: the number in `/device:IPU:<ordinal>`.
      device: its IPUs.
      config: a copy of the config that was applied.
    """

    ordinal: int
    device: hardware.Device
    config: IPUConfig


@attrs.define
class _Configuration:
    config: IPUConfig
    devices: list[hardware.Device]
    # The software model is nobody else's: nothing is held.
    model: bool = attrs.field(factory=running_on_ipu_model)
    attached: set[int] = attrs.field(factory=set)


_lock = threading.RLock()
_active: _Configuration | None = None
_reset_callbacks: list[Callable[[], object]] = []


def configure_ipu_system(config: IPUConfig | IpuOptions, device: str = "cpu", reset_configuration: bool = True) -> None:
    """Applies a config to the system.

    Args:
      config: what to apply. The IPUs it selects are attached at once unless it says otherwise.
      device: accepted for compatibility; where TensorFlow would run the configuring operation.
      reset_configuration: whether a different config that is active may be replaced.
    """
    global _active
    if isinstance(config, IpuOptions):
        config = config.config
    if not isinstance(config, IPUConfig):
        raise TypeError("`config` must be an IpuOptions instance.")
    rules.check(config)
    with _lock:
        if _active is not None and _same(_active.config, config):
            return
        if _active is not None and not reset_configuration:
            raise _failed_precondition(
                "The IPU system is already configured with a different config and reset_configuration=False. "
                "Call reset_ipu_configuration() first, or leave reset_configuration at True."
            )
        # Found before the reset, so that a config that cannot be had leaves the active one alone.
        devices = _find_devices(config)
        if _active is not None:
            logger.warning("Resetting existing IPU configuration before applying new configuration")
            reset_ipu_configuration()
        rules.warn_of_ineffective(config)
        distribution = config.experimental.multi_replica_distribution
        if distribution.process_count > 1:
            # Before anything runs on a device of this process alone.
            instances.join(distribution.process_index, distribution.process_count)
        configuration = _Configuration(copy.deepcopy(config), list(devices))
        selected = bool(config.auto_select_ipus or config.select_ipus)
        if selected and rules.connection_type(config) is DeviceConnectionType.ALWAYS:
            _attach_all(configuration)
        _active = configuration


def reset_ipu_configuration() -> None:
    """Releases all devices and forgets the config and every compiled program."""
    global _active
    with _lock:
        if _active is None:
            return
        for callback in list(_reset_callbacks):
            callback()
        if not _active.model:
            for ordinal in _active.attached:
                hardware.detach(_active.devices[ordinal])
        _active = None


def get_ipu_config(session: object = None) -> list[IpuOptions]:
    """The options of each TensorFlow IPU device."""
    import tensorflow as tf

    if tf.executing_eagerly():
        assert session is None, "No session is required for eager execution."
    with _lock:
        if _active is None:
            raise RuntimeError("No IPU devices configured.")
        return [
            IpuOptions(ordinal, device, copy.deepcopy(_active.config)) for ordinal, device in enumerate(_active.devices)
        ]


def on_reset(callback: Callable[[], object]) -> Callable[[], object]:
    """Calls `callback` at every reset, while the devices are still held; usable as a decorator."""
    _reset_callbacks.append(callback)
    return callback


def active_config() -> IPUConfig | None:
    """The config that is active (not to be changed), or None."""
    return None if _active is None else _active.config


def configured_devices() -> list[hardware.Device]:
    """The IPUs of `/device:IPU:0`, `/device:IPU:1`, …; the first use without a config configures one IPU."""
    return list(_configuration().devices)


def device_connection_type(ordinal: int = 0) -> DeviceConnectionType:
    """When `/device:IPU:<ordinal>` attaches: NEVER refuses executions, PRE_COMPILE answers them with zeros."""
    configuration = _configuration()
    _check_ordinal(configuration, ordinal)
    return rules.connection_type(configuration.config)


def attach_device(ordinal: int = 0) -> hardware.Device:
    """Attaches `/device:IPU:<ordinal>` unless it is attached; what every execution does first.

    Returns:
      Its IPUs. For a device that connects ON_DEMAND they may be others than `configured_devices` said before.
    """
    with _lock:
        configuration = _configuration()
        _check_ordinal(configuration, ordinal)
        if rules.connection_type(configuration.config) in rules.OFFLINE:
            raise _failed_precondition(
                f"{placement.device_name(ordinal)} is configured to be compiled for, not attached to: "
                f"device_connection.type is {configuration.config.device_connection.type}. "
                "Set it to DeviceConnectionType.ALWAYS or ON_DEMAND to execute programs."
            )
        if ordinal not in configuration.attached:
            _attach(configuration, ordinal)
        return configuration.devices[ordinal]


def is_attached(ordinal: int) -> bool:
    """Whether `/device:IPU:<ordinal>` is attached; asks for nothing, so that executions can."""
    configuration = _active
    return configuration is not None and ordinal in configuration.attached


def _configuration() -> _Configuration:
    with _lock:
        if _active is None:
            logger.info("No IPU device was configured: %s gets a single IPU.", placement.device_name(0))
            configure_ipu_system(IPUConfig())
        assert _active is not None
        return _active


def _check_ordinal(configuration: _Configuration, ordinal: int) -> None:
    if not 0 <= ordinal < len(configuration.devices):
        raise ValueError(
            f"There is no {placement.device_name(ordinal)}: {len(configuration.devices)} TensorFlow IPU device(s) are "
            "configured. Give auto_select_ipus one number per device."
        )


def _attach_all(configuration: _Configuration) -> None:
    if not configuration.model:
        # Chosen again, because another process may have attached since.
        found = hardware.claim(lambda busy: rules.find_devices(configuration.config, busy))
        configuration.devices = list(found)
    for ordinal in range(len(configuration.devices)):
        _mark_attached(configuration, ordinal)


def _attach(configuration: _Configuration, ordinal: int) -> None:
    if not configuration.model:
        wait = rules.patience(configuration.config)
        (found,) = hardware.claim(lambda busy: (_free_group(configuration, ordinal, busy),), wait)
        configuration.devices[ordinal] = found
    _mark_attached(configuration, ordinal)


def _mark_attached(configuration: _Configuration, ordinal: int) -> None:
    device = configuration.devices[ordinal]
    configuration.attached.add(ordinal)
    logger.info(
        "TensorFlow device %s attached to %d IPU(s) with Poplar device ID(s): %d",
        placement.device_name(ordinal),
        device.count,
        device.id,
    )


def _free_group(configuration: _Configuration, ordinal: int, busy: frozenset[int]) -> hardware.Device:
    device = configuration.devices[ordinal]
    if configuration.config.select_ipus or busy.isdisjoint(device.ipus):
        return device
    own = {ipu for other in configuration.devices if other is not device for ipu in other.ipus}
    purpose = f"the TensorFlow virtual device {placement.device_name(ordinal)}"
    return hardware.current_system().device(device.count, own | busy, purpose)


def _find_devices(config: IPUConfig) -> tuple[hardware.Device, ...]:
    if not rules.attaches(config):
        return rules.find_devices(config, ())
    active = [_active.devices[ordinal] for ordinal in _active.attached] if _active and not _active.model else []
    return hardware.preview(lambda busy: rules.find_devices(config, busy), active)


def _same(one: IPUConfig, other: IPUConfig) -> bool:
    return _comparable(one) == _comparable(other)


def _comparable(config: IPUConfig) -> dict[str, Any]:
    # [4] and (4,) ask for the same.
    return {name: list(value) if isinstance(value, tuple) else value for name, value in config.to_dict().items()}


def _failed_precondition(message: str) -> Exception:
    import tensorflow as tf

    return tf.errors.FailedPreconditionError(None, None, message)
