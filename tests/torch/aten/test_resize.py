"""Resampling of images, like torch."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.torch.aten.compare import assert_like_torch
from tests.torch.capture.test_module import check

CASES = [
    ("nearest", (2, 2, 5), {"scale_factor": 2.0}),
    ("nearest", (2, 2, 5, 4), {"size": (7, 3)}),
    ("nearest", (1, 2, 3, 2, 2), {"scale_factor": (2.0, 1.5, 1.0)}),
    ("nearest-exact", (2, 2, 5, 4), {"size": (7, 3)}),
    ("linear", (2, 2, 5), {"size": 8}),
    ("bilinear", (2, 2, 5, 4), {"scale_factor": 2.0}),
    ("bilinear", (2, 2, 5, 4), {"size": (7, 3), "align_corners": True}),
    ("bilinear", (2, 2, 5, 4), {"scale_factor": 1.7}),
    ("bilinear", (2, 2, 5, 4), {"scale_factor": 1.7, "recompute_scale_factor": True}),
    ("trilinear", (1, 2, 3, 2, 2), {"size": (4, 3, 1)}),
    ("bicubic", (2, 2, 5, 4), {"size": (8, 6)}),
    ("bicubic", (2, 2, 5, 4), {"size": (8, 6), "align_corners": True}),
]


@pytest.mark.parametrize("mode, shape, settings", CASES, ids=str)
def test_interpolation(mode, shape, settings):
    assert_like_torch(lambda x: F.interpolate(x, mode=mode, **settings), torch.randn(shape))


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, *images):
        return [
            F.interpolate(image * self.scale, mode=mode, **settings)
            for image, (mode, _, settings) in zip(images, CASES, strict=True)
        ]


def test_interpolation_stays_whole_in_a_capture():
    captured = check(Several(), *(torch.randn(shape) for _, shape, _ in CASES))
    assert not any("index" in str(node.target) for node in captured.graph.nodes)


def test_sampling_on_a_grid():
    for mode, padding in [("bilinear", "zeros"), ("nearest", "border"), ("bilinear", "reflection")]:
        assert_like_torch(
            lambda x, g: F.grid_sample(x, g, mode=mode, padding_mode=padding, align_corners=False),
            torch.randn(1, 2, 4, 4),
            torch.rand(1, 3, 3, 2) * 2.4 - 1.2,
            atol=1e-4,
        )
