"""Joining the other instances: JAX's distributed runtime, started once, before anything runs on a device."""

import threading

import jax

from openipu import environment
from openipu.errors import InstanceError
from openipu.instances import leaving
from openipu.instances.membership import membership
from openipu.jax_boundary import backends_initialised

# How long an instance waits for the others to start. They import a framework first, and hosts may be slow.
_PATIENCE = 600

_TELL = "Whoever starts it may say where: set OPENIPU_COORDINATOR=<host of instance 0>:<a free port> for all instances."

_lock = threading.Lock()
_joined: tuple[int, int] | None = None


def joined() -> tuple[int, int] | None:
    """(index, count) of this process, once it has joined others; None before, and for a process that is alone."""
    return _joined


def join(index: int | None = None, count: int | None = None, address: str | None = None) -> tuple[int, int]:
    """Meet the other instances, the first time; returns (index, count).

    Args:
      index, count: which instance of how many this is; None takes what the launcher says.
      address: where they meet; None for where the launcher says.
    """
    global _joined
    if count is None:
        # Whoever has joined already has said who he is.
        place = membership()
        index, count = _joined or (place.index, place.count)
    index = index or 0
    if count == 1:
        return 0, 1
    with _lock:
        if _joined is not None:
            if _joined != (index, count):
                raise InstanceError(
                    f"This process has joined as instance {_joined[0]} of {_joined[1]} and cannot be instance {index} "
                    f"of {count} as well."
                )
            return _joined
        address = address or environment.coordinator() or None
        _check(index, count, address)
        _start(index, count, address)
        _joined = index, count
    return _joined


def _check(index: int, count: int, address: str | None) -> None:
    if not 0 <= index < count:
        raise InstanceError(f"An instance of {count} has a number from 0 to {count - 1}. Received: {index}.")
    if address is None and membership().count != count:
        raise InstanceError(
            f"Instance {index} of {count} does not know where to meet the others. Start the program with poprun, "
            f"mpirun or srun. {_TELL}"
        )
    if backends_initialised():
        raise InstanceError(
            f"Instance {index} of {count} has computed on a device of its own before it joined the others, and cannot "
            "join any more. Call popdist.init() at the start of the program, before models are made."
        )


def _start(index: int, count: int, address: str | None) -> None:
    # The launcher ends instances by SIGTERM; JAX would catch it to announce a preemption.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(address, count, index, initialization_timeout=_PATIENCE)
    except (RuntimeError, ValueError) as error:
        where = f" at {address}" if address else ""
        hint = "" if address else f" {_TELL}"
        raise InstanceError(f"Instance {index} of {count} could not meet the others{where}: {error}{hint}") from error
    leaving.arrange()
