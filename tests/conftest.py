"""Tests share a pod with nobody: each test process has its own registry of held IPUs and its own settings."""

import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def own_pod(tmp_path_factory):
    for name in ("OPENIPU_RUNTIME_DIR", "OPENIPU_CONFIG_DIR"):
        # In the environment, so that processes that tests start have them too.
        os.environ[name] = str(tmp_path_factory.mktemp(name.lower()))


# Files of a few tests that take minutes: they are begun first, so that all workers end at about the same time.
LONG = {"multi_device", "programs"}


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONG.isdisjoint(item.path.parts))
