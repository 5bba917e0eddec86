"""The key of a cached executable: everything that decides what XLA would make."""

import functools
import hashlib
import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

import openipu
from openipu import environment
from openipu.compiler import native
from openipu.jax_boundary import setting
from openipu.program import Plan, Program
from openipu.version import __version__


def digest(*parts: str | bytes) -> str:
    """A hash of texts and bytes that tells ("ab", "c") from ("a", "bc")."""
    made = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        made.update(len(data).to_bytes(8, "little"))
        made.update(data)
    return made.hexdigest()


def key_of(program: Program, plan: Plan, rows: int | None) -> str | None:
    """The key of a program's executable; None for a program whose steps cannot be told apart by text."""
    if program.identity is None:
        return None
    slots = [
        [[list(s.shape), str(s.abstract.dtype)] for s in group]
        for group in (program.shared, program.local, program.batch)
    ]
    described = {"slots": slots, "accumulators": program.accumulators, "plan": repr(plan), "rows": rows}
    described |= surroundings()
    return digest(program.identity, json.dumps(described, sort_keys=True))


def surroundings() -> dict[str, Any]:
    """What is the same for all programs of this process: the machine, and the versions of what compiles for it."""
    devices = jax.local_devices()
    return {
        "openipu": [__version__, _source()],
        "jax": [jax.__version__, metadata.version("jaxlib")],
        "backend": [devices[0].client.platform, devices[0].client.platform_version, devices[0].device_kind],
        "devices": len(devices),
        "machine": _machine(),
        "matmul precision": str(setting("jax_default_matmul_precision")),
        "XLA_FLAGS": environment.xla_flags(),
        "native": _native(devices[0].platform),
        "fold": environment.fold(),
    }


@functools.cache
def _source() -> str:
    """A hash of openipu's own code: a change in a lowering or a pass must not meet an older executable."""
    folder = Path(openipu.__file__).parent
    return digest(*(path.read_bytes() for path in sorted(folder.rglob("*.py"))))


def _native(backend: str) -> str | None:
    """The native kernels that executables may call; to look them up makes them known to XLA."""
    found = native.library() if backend == "cpu" else None
    return found.identity if found is not None else None


@functools.cache
def _machine() -> list[Any]:
    """The processor: XLA uses every instruction it has, and cuts work by the number of its cores."""
    try:
        text = Path("/proc/cpuinfo").read_text()
        described = digest(*sorted({line for line in text.splitlines() if line.startswith(("flags", "Features"))}))
    except OSError:
        described = platform.processor()
    return [platform.system(), platform.machine(), described, _cores()]


def _cores() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
