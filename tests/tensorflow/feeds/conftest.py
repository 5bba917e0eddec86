"""Strategies with several replicas."""

import pytest


@pytest.fixture
def replicated():
    """Makes a strategy on so many IPUs; the configuration is forgotten afterwards."""
    from tensorflow.python import ipu

    def make(ipus):
        ipu.config.reset_ipu_configuration()
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = ipus
        config.configure_ipu_system()
        return ipu.ipu_strategy.IPUStrategy()

    yield make
    ipu.config.reset_ipu_configuration()
