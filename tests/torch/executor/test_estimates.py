"""What PopTorch's options and questions mean to the model of a real IPU."""

import logging

import attrs
import pytest
import torch
from torch import nn

import poptorch
from openipu import hardware
from openipu.errors import OutOfMemoryError
from openipu.model import Partials, Pass, Recompute
from openipu.torch.options.ipu_options import options_of
from openipu.torch.options.options import Options


class Network(nn.Module):
    def __init__(self, kept=False):
        super().__init__()
        self.first, self.second, self.kept = nn.Linear(8, 16), nn.Linear(16, 4), kept

    def forward(self, x, labels):
        x = torch.relu(self.first(x))
        x = self.second(poptorch.recomputationCheckpoint(x) if self.kept else x)
        return x, nn.functional.cross_entropy(x, labels)


def trained(model, options=None):
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    executor = poptorch.trainingModel(model, options, optimizer)
    return executor, executor(torch.ones(4, 8), torch.zeros(4, dtype=torch.long))


def test_options_are_handed_to_the_model():
    made = Options()
    made.Precision.setPartialsType(torch.half)
    made.Precision.enableStochasticRounding(True)
    made.setAvailableMemoryProportion({"IPU0": 0.2, "IPU1": 0.3})
    away = poptorch.TensorLocationSettings().useOnChipStorage(False).useReplicatedTensorSharding(True)
    made.TensorLocations.setOptimizerLocation(away).numIOTiles(64)
    found = options_of(made)
    assert found.partials is Partials.HALF and found.stage_proportions == ((0, 0.2), (1, 0.3))
    assert found.offload_optimizer_state and found.shard_optimizer_state and not found.offload_weights
    assert found.io_tiles == 64 and found.overlap_host and found.stochastic_rounding


def test_operations_know_their_modules_and_latencies_are_estimates(caplog):
    options = poptorch.Options()
    options.logCycleCount(True)
    with caplog.at_level(logging.INFO):
        executor, _ = trained(Network(), options)
        latency = executor.getLatency()
    made = executor._session.compiled.session.estimate()
    layers = {(o.layer, o.phase) for o in made.operations if o.kind.value == "matmul"}
    assert {("first", Pass.FORWARD), ("second", Pass.FORWARD), ("second", Pass.BACKWARD)} <= layers
    assert latency[2] == pytest.approx(made.moments[3]) and executor.cycleCount() == made.cycles_per_execution
    # The same call again says the same: nothing of it was measured.
    executor(torch.ones(4, 8), torch.zeros(4, dtype=torch.long))
    assert executor.getLatency() == latency


def test_checkpoints_change_nothing_but_the_estimate():
    torch.manual_seed(1)
    plain = Network()
    marked = Network(kept=True)
    marked.load_state_dict(plain.state_dict())
    (_, one), (executor, other) = trained(plain), trained(marked)
    torch.testing.assert_close(one, other)
    assert executor._session.compiled.session.estimate().options.recompute is Recompute.CHECKPOINTS


@pytest.fixture
def tiny(monkeypatch):
    """IPUs with hardly any memory."""
    system = hardware.current_system()
    small = attrs.evolve(system, target=attrs.evolve(system.target, bytes_per_tile=4096))
    monkeypatch.setattr(hardware, "current_system", lambda: small)


def test_a_model_that_would_not_fit_is_warned_of(tiny, caplog):
    with caplog.at_level(logging.WARNING, "openipu.memory"):
        trained(Network())
    (record,) = [r for r in caplog.records if r.name == "openipu.memory"]
    assert "would not fit" in record.getMessage() and "too much" in record.getMessage()


def test_a_model_that_would_not_fit_is_refused_if_asked_for(tiny, monkeypatch):
    monkeypatch.setenv("OPENIPU_MEMORY", "error")
    with pytest.raises(OutOfMemoryError, match="Network would not fit"):
        trained(Network())


def test_nobody_asks_when_it_is_switched_off(tiny, monkeypatch, caplog):
    monkeypatch.setenv("OPENIPU_MEMORY", "off")
    trained(Network())
    assert not [r for r in caplog.records if r.name == "openipu.memory"]
