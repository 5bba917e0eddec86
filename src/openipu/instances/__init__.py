"""Instances: the processes, on one host or many, that run a program together, and what they tell each other."""

from openipu.instances.collectives import broadcast, equal, gather, synchronize
from openipu.instances.group import alone, current, only, position
from openipu.instances.joining import join, joined
from openipu.instances.membership import Membership, membership

__all__ = [
    "Membership",
    "alone",
    "broadcast",
    "current",
    "equal",
    "gather",
    "join",
    "joined",
    "membership",
    "only",
    "position",
    "synchronize",
]
