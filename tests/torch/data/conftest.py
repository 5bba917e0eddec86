"""What every test of loaders promises: no process and no shared memory is left."""

import gc
import multiprocessing
import os

import pytest


def shared_memory():
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = shared_memory()
    yield
    gc.collect()
    assert multiprocessing.active_children() == []
    left = {name for name in shared_memory() - before if name.startswith(("torch_", "openipu", "sem.mp", "psm_"))}
    # Others on this machine use the same directory; ours carries our process id where it has a name at all.
    assert not [name for name in left if str(os.getpid()) in name]
