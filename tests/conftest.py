"""Tests share a pod with nobody: each test process has its own registry of held IPUs and its own settings."""

import faulthandler
import gc
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


@pytest.fixture(autouse=True, scope="module")
def short_collections():
    """What other files have left is no garbage and is not searched again: that took up to half of a long run's time."""
    gc.collect()
    gc.freeze()


# Files of a few tests that take minutes: they are begun first, so that all workers end at about the same time.
LONG = {"many_instances", "model", "multi_device", "programs"}


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONG.isdisjoint(item.path.parts))
