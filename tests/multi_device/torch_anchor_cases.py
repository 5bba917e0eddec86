"""What looks at gradients besides the update, with a device for every stage: run by test_multi_device.py."""

import pytest
import torch
from torch import nn

import poptorch


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(3, 4).half(), nn.Linear(4, 2).half()

    def forward(self, x):
        out = self.b(torch.tanh(self.a(x)))
        return out, poptorch.identity_loss((out.float() ** 2).mean(), reduction="none")


ANCHORS = ("UpdatedVar___b.weight", "Gradient___a.weight", "Gradient___b.weight", "finalLossScale")


def trained(blocks, replicas):
    model = Two()
    if blocks:
        poptorch.BeginBlock(model.a, "a", ipu_id=0)
        poptorch.BeginBlock(model.b, "b", ipu_id=1)
    options = poptorch.Options().deviceIterations(2).replicationFactor(replicas)
    options.outputMode(poptorch.OutputMode.All)
    options.Training.gradientAccumulation(4).setAutomaticLossScaling(True)
    options._Popart.set("automaticLossScalingSettings.updatePeriod", 1)
    options.Precision.enableFloatingPointExceptions(True)
    for name in ANCHORS:
        options.anchorTensor(name, name)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, loss_scaling=64.0)
    executor = poptorch.trainingModel(model, options, optimizer)
    x = torch.randn(16 * replicas, 3, generator=torch.Generator().manual_seed(1)).half()
    found = [*executor(x), *(executor.getAnchoredTensor(name) for name in ANCHORS)]
    kind = type(executor._session.compiled.session.engine).__name__
    return kind, [*found, *(p.detach() for p in model.parameters())]


@pytest.mark.parametrize("replicas", [1, 2])
def test_anchors_loss_scale_and_exceptions_of_a_pipeline_are_those_of_accumulation(replicas):
    kind, piped = trained(True, replicas)
    assert kind == "PipelineEngine"
    for mine, plain in zip(piped, trained(False, replicas)[1], strict=True):
        torch.testing.assert_close(mine, plain, rtol=2e-3, atol=2e-3)
