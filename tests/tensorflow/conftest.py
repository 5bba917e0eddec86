"""One virtual IPU for every test that asks for a strategy, and quiet logs."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest


@pytest.fixture
def strategy():
    """A strategy on one virtual IPU; the configuration is forgotten afterwards."""
    from tensorflow.python import ipu

    ipu.config.reset_ipu_configuration()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    yield ipu.ipu_strategy.IPUStrategy()
    ipu.config.reset_ipu_configuration()
