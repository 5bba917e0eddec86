"""Compile the kernels with the machine's C++ compiler.

Only the standard library is needed here: the build hook runs before anything is installed.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"

# All instructions of this machine: the processor is part of what tells libraries apart.
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fPIC", "-fopenmp", "-fno-math-errno", "-w", "-Wno-psabi")


class CompilerError(Exception):
    """The compiler refused the kernels; the text is what it said."""


def compiler(given: str = "") -> list[str] | None:
    """The command of the C++ compiler: the given one (as CXX names it), else the one this machine has."""
    if given:
        return shlex.split(given)
    return next(([found] for name in ("g++", "c++", "clang++") if (found := shutil.which(name))), None)


def installed(fingerprint: str) -> Path:
    """Where the build hook puts the library in the package."""
    return Path(__file__).parent / f"{fingerprint}.so"


def fingerprint(*surroundings: str) -> str:
    """What tells two libraries apart: the kernels, how and for which processor, and versions that the caller names."""
    made = hashlib.sha256()
    for path in _files():
        made.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    for text in (*_FLAGS, platform.system(), platform.machine(), _processor(), *surroundings):
        made.update(text.encode() + b"\0")
    return made.hexdigest()[:32]


def build(target: Path, command: Sequence[str], includes: Sequence[Path], library: Path) -> None:
    """Compile the kernels into `target`, which appears whole or not at all.

    Args:
      target: the library to make; its folder exists.
      command: the compiler.
      includes: folders of headers: XLA's FFI and oneDNN.
      library: oneDNN's, to link with.
    """
    folders = [f"-I{folder}" for folder in (*includes, KERNELS)]
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building.") as name:
        folder = Path(name)
        objects = {path: folder / f"{path.stem}.o" for path in _files() if path.suffix == ".cc"}
        _run([[*command, *_FLAGS, *folders, "-c", str(path), "-o", str(made)] for path, made in objects.items()])
        made = folder / target.name
        _run([[*command, "-shared", "-fopenmp", *map(str, objects.values()), str(library), "-o", str(made)]])
        made.chmod(0o600)
        os.replace(made, target)


def _processor() -> str:
    """The instructions that this machine's processor has."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    return "".join(sorted({line for line in lines if line.startswith(("flags", "Features"))}))


def _files() -> list[Path]:
    return sorted(path for path in KERNELS.iterdir() if path.suffix in (".cc", ".h"))


def _run(commands: list[list[str]]) -> None:
    """Run commands side by side."""
    started: list[subprocess.Popen] = []
    try:
        for command in commands:
            started.append(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
            )
        for command, process in zip(commands, started, strict=True):
            output, _ = process.communicate()
            if process.returncode:
                raise CompilerError(f"{shlex.join(command)}\n{output.strip()}")
    except OSError as error:
        raise CompilerError(str(error)) from error
    finally:
        for process in started:
            process.kill()
            # Waits for it and closes its pipe.
            process.__exit__(None, None, None)
