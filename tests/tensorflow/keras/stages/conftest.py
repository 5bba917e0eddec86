"""A strategy in whose scope models have the methods about stages."""

import pytest

from openipu.tensorflow import strategy as strategies
from openipu.tensorflow.keras import extend, extension, stages


def _with(mixin, name):
    base = getattr(extension, name)
    return base if issubclass(base, stages.ModelStages) else type(name, (mixin, base), {})


@pytest.fixture
def strategy(monkeypatch):
    pairs = [
        ("ModelExtension", stages.ModelStages),
        ("FunctionalExtension", stages.FunctionalStages),
        ("SequentialExtension", stages.SequentialStages),
    ]
    for name, made in [(name, _with(mixin, name)) for name, mixin in pairs]:
        monkeypatch.setattr(extension, name, made)
    monkeypatch.setattr(extend, "_extended", {})
    return strategies.IPUStrategyV1()


@pytest.fixture
def scope(strategy):
    with strategy.scope():
        yield strategy
