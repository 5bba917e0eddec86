"""Anchors: tensors inside a model, compared with what stock torch computes for the same step."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def forward(self, x, target):
        out = self.head(self.features(x).flatten(1))
        return out, F.cross_entropy(out, target)


def batch(rows, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 1, 4, 4, generator=draw), torch.randint(0, 3, (rows,), generator=draw)


def test_activations_gradients_and_updated_weights_of_every_micro_batch():
    model = Net()
    stock = copy.deepcopy(model)
    options = poptorch.Options().deviceIterations(2).outputMode(poptorch.OutputMode.All)
    options.Training.gradientAccumulation(2)
    names = {
        "conv": "features/0/Conv:0", "relu": "features/2/Relu:0", "logits": "head/MatMul:0",
        "gradient": "Gradient___head.weight", "weight": "head.weight", "updated": "UpdatedVar___head.weight",
        "statistics": "features.1.running_mean", "loss": "loss",
    }  # fmt: skip
    for short, name in names.items():
        options.anchorTensor(short, name)
    options.anchorTensor("last", "UpdatedVar___head.weight", poptorch.OutputMode.Final)
    executor = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.5))
    x, target = batch(8)
    executor(x, target)
    assert set(names.values()) <= set(executor.getTensorNames())

    seen = {short: [] for short in names}
    sgd = torch.optim.SGD(stock.parameters(), lr=0.5)
    for update in range(2):
        for step in (2 * update, 2 * update + 1):
            rows = slice(2 * step, 2 * step + 2)
            seen["statistics"].append(stock.features[1].running_mean.clone())
            seen["weight"].append(stock.head.weight.detach().clone())
            conv = stock.features[0](x[rows])
            relu = F.relu(stock.features[1](conv))
            logits = stock.head(relu.flatten(1))
            loss = F.cross_entropy(logits, target[rows])
            (gradient,) = torch.autograd.grad(loss, stock.head.weight, retain_graph=True)
            (loss / 2).backward()
            for short, value in (("conv", conv), ("relu", relu), ("logits", logits), ("gradient", gradient)):
                seen[short].append(value.detach())
            seen["loss"].append(loss.detach()[None])
        sgd.step()
        sgd.zero_grad()
        seen["updated"] += [stock.head.weight.detach().clone()] * 2
    for short, values in seen.items():
        torch.testing.assert_close(
            executor.getAnchoredTensor(short), torch.cat(values), rtol=1e-5, atol=1e-6, msg=short
        )
    torch.testing.assert_close(executor.getAnchoredTensor("last"), model.head.weight.detach(), rtol=0, atol=0)


def test_anchors_of_replicas_follow_the_output_mode():
    model = Net()
    options = poptorch.Options().replicationFactor(2)
    options.anchorTensor("updated", "UpdatedVar___head.bias")
    options.anchorTensor("rate", "scaledLearningRate0___specific___head.bias")
    options.anchorTensor("logits", "head/MatMul:0")
    executor = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.5))
    out, _ = executor(*batch(4))
    torch.testing.assert_close(executor.getAnchoredTensor("updated"), model.head.bias.detach().repeat(2))
    torch.testing.assert_close(executor.getAnchoredTensor("logits"), out)
    torch.testing.assert_close(executor.getAnchoredTensor("rate"), torch.tensor([0.5, 0.5]))


def test_anchors_of_an_inference_model():
    model = Net().eval()
    x, target = batch(2)
    for options, name in (
        (poptorch.Options(), "features/2/Relu:0"),
        (poptorch.Options().disableModuleNamescope(), "Relu:0"),
    ):
        options.anchorTensor("relu", name)
        executor = poptorch.inferenceModel(model, options)
        executor(x, target)
        torch.testing.assert_close(executor.getAnchoredTensor("relu"), model.features(x))


def test_a_return_period_longer_than_a_call_is_refused_before_anything_runs():
    model = Net()
    before = model.head.weight.detach().clone()
    options = poptorch.Options().deviceIterations(2)
    options.anchorTensor("x", "input_0", poptorch.OutputMode.EveryN, 4)
    with pytest.raises(poptorch.Error, match="Return period must be <= to the number of batches per step"):
        poptorch.trainingModel(model, options)(*batch(4))
    assert torch.equal(model.head.weight.detach(), before)


def test_a_name_that_no_tensor_has_is_refused_with_those_there_are():
    options = poptorch.Options()
    options.anchorTensor("x", "fc/Conv:0")
    with pytest.raises(poptorch.Error, match=r"\['fc/Conv:0'\] cannot be anchored.*features/0/Conv:0"):
        poptorch.inferenceModel(Net(), options)(*batch(2))
