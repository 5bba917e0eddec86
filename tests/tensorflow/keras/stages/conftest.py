"""The scope in which models have the methods about stages."""

import pytest


@pytest.fixture
def scope(strategy):
    with strategy.scope():
        yield strategy
