"""The virtual IPUs: what kind they are, how many there are and who holds them."""

from openipu.hardware.attachment import acquire, attach, attached, attached_ipus, claim, detach, holders, preview
from openipu.hardware.directory import RegistryError
from openipu.hardware.registry import Holding
from openipu.hardware.system import Device, System, current_system, parse_system
from openipu.hardware.target import BOW, C600, MK1, MK2, TARGETS, Target, target_for
from openipu.hardware.waiting import Wait

__all__ = [
    "BOW",
    "C600",
    "MK1",
    "MK2",
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
    "holders",
    "parse_system",
    "preview",
    "target_for",
]
