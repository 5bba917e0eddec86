"""Pooling of any geometry, forward and gradient, like torch, also where values are equal."""

import hypothesis
import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st

from tests.torch.aten.compare import assert_like_torch

MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
settings = hypothesis.settings(derandomize=True, max_examples=8, deadline=None)


@st.composite
def geometry(draw):
    rank = draw(st.integers(1, 3))
    sizes = {
        "kernel_size": draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank)),
        "stride": draw(st.none() | st.lists(st.integers(1, 3), min_size=rank, max_size=rank)),
    }
    sizes["padding"] = [draw(st.integers(0, k // 2)) for k in sizes["kernel_size"]]
    shape = [draw(st.integers(5, 7)) for _ in range(rank)]
    return rank, sizes, shape, draw(st.booleans())


@settings
@hypothesis.given(geometry(), st.booleans(), st.integers(1, 2))
def test_max_pooling_gives_the_gradient_to_the_first(drawn, indices, dilation):
    rank, sizes, shape, ceil_mode = drawn
    torch.manual_seed(0)
    # Few different values, so that windows hold equal ones.
    x = torch.randint(0, 3, (2, 2, *shape)).float()

    def function(x):
        return MAX[rank](x, **sizes, dilation=dilation, ceil_mode=ceil_mode, return_indices=indices)

    assert_like_torch(function, x)


@settings
@hypothesis.given(geometry(), st.booleans(), st.sampled_from([None, 3]))
def test_average_pooling(drawn, include_pad, divisor):
    rank, sizes, shape, ceil_mode = drawn
    extra = {} if rank == 1 else {"divisor_override": divisor}

    def function(x):
        return AVERAGE[rank](x, **sizes, ceil_mode=ceil_mode, count_include_pad=include_pad, **extra)

    torch.manual_seed(0)
    assert_like_torch(function, torch.randn(2, 2, *shape))


@pytest.mark.parametrize(
    "function, shape, size",
    [
        (F.adaptive_avg_pool1d, (2, 3, 7), 3),
        (F.adaptive_avg_pool2d, (2, 3, 6, 8), (3, 2)),
        (F.adaptive_avg_pool2d, (2, 3, 7, 5), (3, 2)),
        (F.adaptive_avg_pool2d, (2, 3, 7, 5), 1),
        (F.adaptive_avg_pool2d, (2, 3, 2, 2), (3, 5)),
        (F.adaptive_avg_pool3d, (1, 2, 5, 4, 3), (2, 3, 1)),
        (F.adaptive_max_pool1d, (2, 3, 7), 3),
        (F.adaptive_max_pool2d, (2, 3, 7, 5), (3, 2)),
        (F.adaptive_max_pool3d, (1, 2, 5, 4, 3), (2, 3, 1)),
    ],
)
def test_adaptive_pooling(function, shape, size):
    assert_like_torch(lambda x: function(x, size), torch.randn(shape))


def test_lp_pooling():
    assert_like_torch(lambda x: F.lp_pool2d(x, 2, 3, 2), torch.randn(1, 2, 7, 7))
