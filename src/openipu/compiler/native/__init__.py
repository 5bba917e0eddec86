"""Native kernels: functions in C++, on oneDNN, that XLA programs call on their own buffers.

They are optional. Where there is a compiler and oneDNN they are compiled, when the package is installed or on first
use; elsewhere the rewriting passes keep to XLA's operations. Nothing else in openipu depends on which it is.

  onednn      where oneDNN is
  build       compiles the kernels
  loading     finds, makes and loads the library
  targets     JAX primitives that stand for the library's functions

A *family* of kernels is mostly three files: its functions (`kernels/<family>.cc`), its JAX primitives with shapes and
the rule for lanes (`<family>.py` here), and the rule that decides where a program uses it
(`compiler/passes/native_<family>.py`). To add one, write these, name its functions in `targets.NAMES` and its rule in
`compiler/passes/rewriter.py`; `build` compiles every file in `kernels/`. Loops are the largest family: what makes their
programs is a room of its own (`compiler/passes/loops`).
"""

from openipu.compiler.native.loading import Library, Unavailable, library, why_not

__all__ = ["Library", "Unavailable", "library", "why_not"]
