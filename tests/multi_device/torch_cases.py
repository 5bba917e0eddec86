"""Torch models cut into blocks, with a device for every stage: run by test_multi_device.py."""

import copy

import pytest
import torch
from torch import nn

import poptorch


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(3)]
        )
        self.norm, self.head = nn.BatchNorm1d(8), nn.Linear(8, 5)

    def forward(self, x, y=None):
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        out = self.head(self.norm(x.mean(1)))
        return (out, nn.functional.cross_entropy(out, y)) if y is not None else out


def executor_of(model, replicas):
    options = poptorch.Options().deviceIterations(2).replicationFactor(replicas)
    options.outputMode(poptorch.OutputMode.All)
    options.Training.gradientAccumulation(7)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, loss_scaling=4.0, max_grad_norm=5.0)
    return poptorch.trainingModel(model, options, optimizer)


@pytest.mark.parametrize("replicas", [1, 2])
def test_stages_on_their_own_devices_train_like_accumulation(replicas):
    torch.manual_seed(0)
    piped = Deep()
    plain = copy.deepcopy(piped)
    for number, layer in enumerate(piped.layers, 1):
        poptorch.BeginBlock(layer, f"layer{number}", ipu_id=number)
    first, second = executor_of(piped, replicas), executor_of(plain, replicas)
    # Eight rows a micro-batch: statistics of two would enlarge every rounding.
    x, y = torch.randint(0, 20, (112 * replicas, 6)), torch.randint(0, 5, (112 * replicas,))
    for _ in range(3):
        torch.testing.assert_close(first(x, y)[1], second(x, y)[1], rtol=1e-5, atol=1e-6)
    parts = first._session.compiled.session.engine.executable.parts
    assert [part.device.id for part in parts] == [0, 1, 2, 3, 3, 2, 1, 0]
    # Each stage has the weights of its own blocks only.
    assert len(parts[0].inputs) == 2
    for (name, mine), other in zip(piped.named_parameters(), plain.parameters(), strict=True):
        assert (mine.detach() - other.detach()).norm() <= 1e-5 * (other.detach().norm() + 0.1), name
