"""Program + plan -> executable: one XLA program that runs a whole execution."""

from openipu.compiler.compile import Executable, compile_program, on_one_device

__all__ = ["Executable", "compile_program", "on_one_device"]
