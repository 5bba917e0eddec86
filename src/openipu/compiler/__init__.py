"""Program + plan -> executable: one XLA program that runs a whole execution."""

from openipu.compiler.threads import use_all_cores

use_all_cores()

from openipu.compiler.compile import Executable, compile_program  # noqa: E402

__all__ = ["Executable", "compile_program"]
