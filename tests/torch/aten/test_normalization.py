"""Normalisation layers in training and evaluation, captured whole, like torch."""

import pytest
import torch
from torch import nn

from tests.torch.aten.compare import assert_like_torch
from tests.torch.capture.test_module import check


@pytest.mark.parametrize("train", [True, False])
def test_layers(train):
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(
                [
                    nn.BatchNorm2d(4, momentum=0.3),
                    nn.BatchNorm2d(4, affine=False),
                    nn.BatchNorm2d(4, track_running_stats=False),
                    nn.InstanceNorm2d(4, affine=True),
                    nn.InstanceNorm2d(4, track_running_stats=True),
                    nn.GroupNorm(2, 4),
                    nn.GroupNorm(4, 4, affine=False),
                    nn.LayerNorm((5, 3)),
                    nn.LayerNorm(3, elementwise_affine=False),
                    nn.RMSNorm(3),
                    nn.LocalResponseNorm(2),
                ]
            )

        def forward(self, x):
            return [layer(x) for layer in self.layers]

    captured = check(Layers().train(train), torch.randn(2, 4, 5, 3))
    assert ("layers.0.running_mean" in captured.mutated) == train


@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5), (2, 4, 3, 2, 2)])
def test_batch_norm_of_any_rank(shape):
    assert_like_torch(
        lambda x, w, b: nn.functional.batch_norm(x, None, None, w, b, training=True),
        torch.randn(shape),
        torch.randn(4),
        torch.randn(4),
        atol=1e-4,
    )


def test_weight_norm():
    check(nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), torch.randn(2, 3))


def test_half_precision():
    x = torch.randn(3, 8).half()
    assert_like_torch(lambda x: nn.functional.layer_norm(x, (8,)), x, rtol=5e-3, atol=5e-3)
    assert_like_torch(lambda x: nn.functional.group_norm(x, 2), x[..., None], rtol=5e-3, atol=5e-3)
