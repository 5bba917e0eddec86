"""Program + plan -> executable: one XLA program that runs a whole execution."""

from openipu.compiler.cache import Cache
from openipu.compiler.compile import Executable, compile_program, export, on_one_device
from openipu.compiler.key import digest

__all__ = ["Cache", "Executable", "compile_program", "digest", "export", "on_one_device"]
