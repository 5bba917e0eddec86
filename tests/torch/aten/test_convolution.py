"""Convolutions of any rank and geometry, forward and gradient, like torch."""

import hypothesis
import torch
import torch.nn.functional as F
from hypothesis import strategies as st

from tests.torch.aten.compare import assert_like_torch

FORWARD = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
settings = hypothesis.settings(derandomize=True, max_examples=8, deadline=None)


def each(rank, low, high):
    return st.lists(st.integers(low, high), min_size=rank, max_size=rank)


@st.composite
def geometry(draw):
    rank = draw(st.integers(1, 3))
    names = ("kernel", "stride", "padding", "dilation")
    drawn = {name: draw(each(rank, 0 if name == "padding" else 1, 3 if name == "kernel" else 2)) for name in names}
    size = [d * (k - 1) + 1 + draw(st.integers(0, 3)) for k, d in zip(drawn["kernel"], drawn["dilation"], strict=True)]
    return rank, drawn, size, draw(st.sampled_from([1, 2])), draw(st.booleans())


@settings
@hypothesis.given(geometry())
def test_convolution(drawn):
    rank, g, size, groups, with_bias = drawn
    torch.manual_seed(0)
    x, weight = torch.randn(2, 2 * groups, *size), torch.randn(3 * groups, 2, *g["kernel"])
    bias = [torch.randn(3 * groups)] if with_bias else []

    def function(x, weight, bias=None):
        return FORWARD[rank](x, weight, bias, g["stride"], g["padding"], g["dilation"], groups)

    assert_like_torch(function, x, weight, *bias)


@settings
@hypothesis.given(geometry())
def test_transposed_convolution(drawn):
    rank, g, size, groups, with_bias = drawn
    torch.manual_seed(0)
    x, weight = torch.randn(2, 2 * groups, *size), torch.randn(2 * groups, 3, *g["kernel"])
    bias = [torch.randn(3 * groups)] if with_bias else []
    extra = [max(s, d) - 1 for s, d in zip(g["stride"], g["dilation"], strict=True)]
    lengths = zip(size, g["stride"], g["padding"], g["dilation"], g["kernel"], extra, strict=True)
    hypothesis.assume(all((n - 1) * s - 2 * p + d * (k - 1) + e + 1 > 0 for n, s, p, d, k, e in lengths))

    def function(x, weight, bias=None):
        return TRANSPOSED[rank](x, weight, bias, g["stride"], g["padding"], extra, groups, g["dilation"])

    assert_like_torch(function, x, weight, *bias)


def test_one_image_without_batch_and_padding_by_name():
    x, weight = torch.randn(2, 7, 6), torch.randn(3, 2, 4, 3)
    assert_like_torch(lambda x, w: F.conv2d(x, w, padding="same"), x, weight)
    assert_like_torch(lambda x, w: F.conv2d(x, w, padding="valid"), x, weight)


def test_half_precision():
    x, weight = torch.randn(2, 2, 5, 5).half(), torch.randn(3, 2, 3, 3).half()
    assert_like_torch(F.conv2d, x, weight, rtol=2e-2, atol=2e-2)


def test_patches_and_their_inverse():
    x = torch.randn(2, 2, 6, 5)
    assert_like_torch(lambda x: F.unfold(x, (2, 3), dilation=2, padding=1, stride=2), x)
    assert_like_torch(lambda x: F.fold(x, (4, 5), (2, 2)), torch.randn(2, 8, 12))
