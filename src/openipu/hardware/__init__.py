"""The virtual IPUs: what kind they are, how many there are and who holds them."""

from openipu.hardware.attachment import attach, attached, attached_ipus, detach
from openipu.hardware.system import Device, System, current_system, parse_system
from openipu.hardware.target import BOW, C600, MK1, MK2, TARGETS, Target, target_for

__all__ = [
    "BOW",
    "C600",
    "MK1",
    "MK2",
    "TARGETS",
    "Device",
    "System",
    "Target",
    "attach",
    "attached",
    "attached_ipus",
    "current_system",
    "detach",
    "parse_system",
    "target_for",
]
