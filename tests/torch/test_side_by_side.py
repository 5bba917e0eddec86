"""The same module, weights and batches in poptorch and in stock torch: the same losses and weights."""

import copy

import pytest
import torch

import poptorch
from tests.torch.modules import MODULES, batch_of, leaves

UPDATES = 50
MICRO = 4
# device iterations, accumulation, replicas
PLANS = [(5, 1, 1), (2, 2, 1), (2, 1, 2), (1, 2, 2), (5, 3, 1), (1, 1, 1)]
CASES = [(name, PLANS[0]) for name in MODULES] + [
    (name, PLANS[1 + number % (len(PLANS) - 1)]) for number, name in enumerate(MODULES)
]


def trained_by_torch(model, optimizer, batches, plan):
    """Losses of every micro-batch, in order."""
    iterations, accumulation, replicas = plan
    losses = []
    for batch in batches:
        pieces = [torch.chunk(x, iterations * accumulation * replicas) for x in batch]
        micro = list(zip(*pieces, strict=True))
        for start in range(0, len(micro), accumulation * replicas):
            optimizer.zero_grad()
            for one in micro[start : start + accumulation * replicas]:
                loss = model(*one)[1]
                (loss / (accumulation * replicas)).backward()
                losses.append(loss.detach())
            optimizer.step()
    return torch.stack(losses)


def assert_close(actual, expected, what):
    scale = expected.norm() + 1e-3
    assert (actual - expected).norm() <= 1e-5 * scale, f"{what}: {(actual - expected).norm() / scale}"


@pytest.mark.parametrize("name, plan", CASES)
def test_training_agrees_with_torch(name, plan):
    torch.manual_seed(1)
    iterations, accumulation, replicas = plan
    ours = MODULES[name][0]()
    stock = copy.deepcopy(ours)
    rows = MICRO * iterations * accumulation * replicas
    batches = [batch_of(name, rows) for _ in range(UPDATES // iterations)]
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    options.outputMode(poptorch.OutputMode.All)
    optimizer = poptorch.optim.SGD(ours.parameters(), lr=0.01, momentum=0.9)
    executor = poptorch.trainingModel(ours, options, optimizer)
    losses, outputs = [], None
    for batch in batches:
        outputs, loss = executor(*batch)
        losses.append(loss.reshape(-1))
    expected = trained_by_torch(stock, torch.optim.SGD(stock.parameters(), lr=0.01, momentum=0.9), batches, plan)
    assert_close(torch.cat(losses), expected, "losses")
    assert leaves(outputs)[0].shape[0] == rows
    for (key, mine), other in zip(ours.named_parameters(), stock.parameters(), strict=True):
        assert_close(mine.detach(), other.detach(), key)
