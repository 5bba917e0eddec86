"""Normalisation layers as stock torch computes them, where the device needs a way of its own."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch


class Normed(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        out = self.norm(x)
        return out, F.mse_loss(out, torch.zeros_like(out, device=out.device))


def data(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)) * 2 + 1


def test_statistics_without_momentum_are_the_average_over_all_batches():
    model = Normed(nn.BatchNorm2d(3, momentum=None))
    stock = copy.deepcopy(model)
    options = poptorch.Options().deviceIterations(2)
    options.Training.gradientAccumulation(2)
    executor = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.1))
    sgd = torch.optim.SGD(stock.parameters(), lr=0.1)
    x = data(16, 3, 4, 4)
    for half in (x[:8], x[8:]):
        executor(half)
    for update in x.reshape(4, 2, 2, 3, 4, 4):
        sgd.zero_grad()
        for micro in update:
            (stock(micro)[1] / 2).backward()
        sgd.step()
    for name, value in stock.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-5, atol=1e-6, msg=name)
    assert model.norm.num_batches_tracked == 8
    executor.destroy()
    torch.testing.assert_close(model.eval()(x)[0], stock.eval()(x)[0], rtol=1e-5, atol=1e-5)
    inference = poptorch.inferenceModel(model)
    torch.testing.assert_close(inference(x)[0], stock(x)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("momentum", [0.25, None])
def test_a_half_batch_norm_takes_float32_and_gives_float32(momentum):
    model = Normed(nn.BatchNorm1d(3, momentum=momentum).half())
    stock = copy.deepcopy(model).float()
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))
    x = data(6, 3)
    out, _ = executor(x)
    expected, _ = stock(x)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, expected.detach(), rtol=1e-5, atol=1e-5)
    assert model.norm.running_var.dtype == torch.float16
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(model.norm, name).float(), getattr(stock.norm, name), rtol=1e-3, atol=1e-3)
    executor.destroy()
    evaluated = poptorch.inferenceModel(model.eval())(x)[0]
    exact = copy.deepcopy(model).float()(x)[0].detach()
    torch.testing.assert_close(evaluated, exact, rtol=1e-5, atol=1e-5)


def test_channels_of_a_group_may_lie_apart():
    norm = nn.GroupNorm(2, 6)
    nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    options = poptorch.Options()
    options._Popart.set("groupNormStridedChannelGrouping", True)
    x = data(2, 6, 3)
    out = poptorch.inferenceModel(norm, options)(x)
    order = [0, 2, 4, 1, 3, 5]
    expected = torch.empty_like(x)
    expected[:, order] = F.group_norm(x[:, order], 2, norm.weight[order], norm.bias[order])
    torch.testing.assert_close(out, expected.detach())
