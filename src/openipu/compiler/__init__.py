"""Program + plan -> executable: one XLA program that runs a whole execution."""

from openipu.compiler.cache import Cache
from openipu.compiler.compile import Executable, compile_program, export, on_one_device, restore
from openipu.compiler.key import digest, surroundings
from openipu.compiler.pipeline import devices_for
from openipu.compiler.traps import Traps

__all__ = [
    "Cache",
    "Executable",
    "Traps",
    "compile_program",
    "devices_for",
    "digest",
    "export",
    "on_one_device",
    "restore",
    "surroundings",
]
