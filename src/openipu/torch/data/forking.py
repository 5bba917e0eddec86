"""Handing things to new processes: forking beside JAX, datasets that are unpickled late, random generators."""

import contextlib
import pickle
import warnings
from collections.abc import Iterator
from multiprocessing import reduction
from typing import Any

import torch


@contextlib.contextmanager
def quiet_fork() -> Iterator[None]:
    """Silences JAX's warning about forking while a process that loads data is started.

    Such a process never calls JAX, and JAX is idle here: a call of an executor has its results when it returns, so
    that no thread of JAX holds a lock at the moment of the fork. A dataset that uses JAX itself must not be forked: it
    needs `multiprocessing_context="forkserver"`, or a sharing strategy other than Fork.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
        yield


class Deferred:
    """An object that another process unpickles when it asks for it, where it can report what goes wrong.

    Args:
      value: the object.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self.pickled: bytes | None = None

    def load(self) -> Any:
        """The object."""
        return self.value if self.pickled is None else pickle.loads(self.pickled)

    def __getstate__(self) -> dict[str, Any]:
        # Pickled at this moment, and not before, because shared tensors need to know the process being started.
        return {"value": None, "pickled": bytes(reduction.ForkingPickler.dumps(self.value))}


def _reduce_generator(generator: torch.Generator) -> tuple:
    return _generator_from, (generator.get_state().numpy().tobytes(),)


def _generator_from(state: bytes) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return generator


# By torch's own way the state travels as a temporary tensor, whose memory is gone when a new process looks for it.
reduction.ForkingPickler.register(torch.Generator, _reduce_generator)
