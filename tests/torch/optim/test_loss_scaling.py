"""Loss scaling by what the gradients say: grows while there is room, shrinks before float16 overflows."""

import pytest
import torch
from torch import nn

import poptorch


class Half(nn.Module):
    """A float16 weight whose gradient is the loss scale, times the inputs' mean."""

    def __init__(self, dtype=torch.float16):
        super().__init__()
        self.w = nn.Parameter(torch.ones(4, dtype=dtype))

    def forward(self, x):
        return poptorch.identity_loss((self.w * x.to(self.w.dtype)).float(), reduction="sum")


def trainer(model, scaling, period=2, iterations=1, accumulation=1, **extra):
    options = poptorch.Options().deviceIterations(iterations).outputMode(poptorch.OutputMode.All)
    options.Training.setAutomaticLossScaling(True).gradientAccumulation(accumulation)
    options._Popart.set("automaticLossScalingSettings.updatePeriod", period)
    options.anchorTensor("scale", "finalLossScale")
    optimizer = poptorch.optim.SGD(model.parameters(), lr=2.0**-10, loss_scaling=scaling, **extra)
    return poptorch.trainingModel(model, options, optimizer), optimizer


def test_the_scale_doubles_while_gradients_are_small_and_halves_when_they_are_large():
    executor, optimizer = trainer(Half(), 1024.0, iterations=12)
    executor(torch.ones(12, 4))
    # A gradient equals the scale. An eighth of the largest float16 is 8188: 8192 is beyond it, 4096 is not.
    expected = [1024, 1024, 2048, 2048, 4096, 4096, 8192, 8192, 4096, 4096, 8192, 8192]
    assert executor.getAnchoredTensor("scale").tolist() == expected
    state = optimizer.state_dict()
    assert state["ipu_state"]["lossScaleUpdateFactor"].item() == 4.0
    assert state["ipu_param"]["lossScaling_FLOAT"].item() == 1024.0


@pytest.mark.parametrize("replicas, accumulation, kind", [(1, 1, "float32"), (2, 3, "float32"), (1, 3, "float16")])
def test_what_is_learned_does_not_depend_on_the_scale(replicas, accumulation, kind):
    model, plain = Half(), Half()
    kind = getattr(torch, kind)
    options = poptorch.Options().deviceIterations(4).replicationFactor(replicas)
    options.Training.setAutomaticLossScaling(True).gradientAccumulation(accumulation)
    options._Popart.set("automaticLossScalingSettings.updatePeriod", 1)
    x = torch.randint(1, 5, (4 * replicas * accumulation, 4)).float()
    executor = poptorch.trainingModel(
        model, options, poptorch.optim.SGD(model.parameters(), lr=2.0**-10, loss_scaling=64.0, accum_type=kind)
    )
    executor(x)
    for rows in x.reshape(4, -1, 4):
        gradient = rows.mean(0)
        with torch.no_grad():
            plain.w.copy_((plain.w.float() - 2.0**-10 * gradient).half())
    torch.testing.assert_close(model.w, plain.w, rtol=2e-3, atol=0)


def test_an_update_whose_gradients_overflow_is_left_out_and_the_scale_shrinks():
    model = Half()
    executor, _ = trainer(model, 16384.0, period=1, iterations=4)
    # 16384 * 8 is no float16; 8192 * 8 is none either; 4096 * 8 is one, but a large one.
    executor(torch.full((4, 4), 8.0))
    assert executor.getAnchoredTensor("scale").tolist() == [16384, 8192, 4096, 2048]
    torch.testing.assert_close(model.w.float(), torch.full((4,), 1 - 2 * 8 * 2.0**-10))


def test_only_float16_gradients_count_and_the_scale_stays_within_float16():
    executor, _ = trainer(Half(torch.float32), 64.0, period=1, iterations=3)
    executor(torch.ones(3, 4))
    assert executor.getAnchoredTensor("scale").tolist() == [64, 64, 64]
    executor, _ = trainer(Half(), 16384.0, period=1, iterations=4)
    executor(torch.full((4, 4), 2.0**-12))
    assert executor.getAnchoredTensor("scale").tolist() == [16384, 32768, 32768, 32768]


def test_the_factor_is_saved_and_loaded_with_the_optimizer():
    executor, optimizer = trainer(Half(), 64.0, period=1)
    for _ in range(3):
        executor(torch.ones(1, 4))
    saved = optimizer.state_dict()
    other, fresh = trainer(Half(), 64.0, period=1)
    fresh.load_state_dict(saved)
    other(torch.ones(1, 4))
    assert other.getAnchoredTensor("scale").item() == 512.0
    fresh.loss_scaling = 32.0
    other.setOptimizer(fresh)
    other(torch.ones(1, 4))
    assert other.getAnchoredTensor("scale").item() == 32.0 * 16
