"""Tests share a pod with nobody: each test process has its own registry of held IPUs and its own settings."""

import faulthandler
import gc
import itertools
import os
import sys

# The reference is stock TensorFlow, whose oneDNN dies of an illegal instruction in float16 on some processors.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

# The forms that every machine has are the ones to be tested; native kernels have tests of their own.
os.environ.setdefault("OPENIPU_NATIVE", "off")

import pytest

# Seconds for the whole run; `faulthandler_timeout` is the limit of one test.
LIMIT = 5400


def pytest_configure(config):
    # There is one such alarm in a process: where tests run, it is theirs.
    if config.getoption("numprocesses", None):
        faulthandler.dump_traceback_later(LIMIT, exit=True, file=sys.__stderr__)


def pytest_unconfigure(config):
    if config.getoption("numprocesses", None):
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True, scope="session")
def own_pod(tmp_path_factory):
    for name in ("OPENIPU_RUNTIME_DIR", "OPENIPU_CONFIG_DIR"):
        # In the environment, so that processes that tests start have them too.
        os.environ[name] = str(tmp_path_factory.mktemp(name.lower()))


# After so many files everything is searched, so that a worker does not grow for ever.
_SEARCHED_AGAIN = 16
_files = itertools.count(1)


@pytest.fixture(autouse=True, scope="module")
def short_collections():
    """What other files have left is searched for garbage once in a while only: that took a quarter of a run's time."""
    if next(_files) % _SEARCHED_AGAIN == 0:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


# Files of a few tests that take minutes: they are begun first, so that all workers end at about the same time.
LONG = {"many_instances", "model", "multi_device", "programs"}


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONG.isdisjoint(item.path.parts))
