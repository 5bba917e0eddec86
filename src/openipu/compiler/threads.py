"""Let XLA use every core: on machines with few cores its CPU client counts fewer than the process may run on."""

import os


def use_all_cores() -> None:
    """Tell XLA's CPU client how many threads to start; must happen before JAX makes its first array.

    Measured on two cores: XLA's own choice was one thread, and large products took twice as long. A number that the
    user has set (PJRT_NPROC or NPROC) is kept.
    """
    if "NPROC" not in os.environ:
        os.environ.setdefault("PJRT_NPROC", str(_cores()))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
