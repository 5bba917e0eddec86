"""The virtual IPUs: what kind they are, how many there are and who holds them."""

from openipu.hardware.attachment import acquire, attach, attached, attached_ipus, claim, detach, holders, preview
from openipu.hardware.directory import RegistryError, registry_directory
from openipu.hardware.processes import short_command
from openipu.hardware.registry import Holding
from openipu.hardware.system import (
    POD_TARGETS,
    Device,
    System,
    current_system,
    group_size,
    ipu_numbers,
    parse_system,
    pod_names,
)
from openipu.hardware.target import BOW, C600, MK1, MK2, TARGETS, Target, target_for
from openipu.hardware.waiting import Wait

__all__ = [
    "BOW",
    "C600",
    "MK1",
    "MK2",
    "POD_TARGETS",
    "TARGETS",
    "Device",
    "Holding",
    "RegistryError",
    "System",
    "Target",
    "Wait",
    "acquire",
    "attach",
    "attached",
    "attached_ipus",
    "claim",
    "current_system",
    "detach",
    "group_size",
    "holders",
    "ipu_numbers",
    "parse_system",
    "pod_names",
    "preview",
    "registry_directory",
    "short_command",
    "target_for",
]
