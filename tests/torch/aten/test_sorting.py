"""Sorting and reductions with ties, over dtypes and dimensions, like torch."""

import hypothesis
import torch
from hypothesis import strategies as st

from tests.torch.aten.compare import assert_like_torch

settings = hypothesis.settings(derandomize=True, max_examples=12, deadline=None)
DTYPES = st.sampled_from([torch.float32, torch.int32, torch.int64, torch.float16])
SORTS = [
    lambda x, dim: torch.sort(x, dim=dim, stable=True),
    lambda x, dim: torch.sort(x, dim=dim, stable=True, descending=True),
    lambda x, dim: torch.topk(x, 2, dim=dim)[0],
    lambda x, dim: torch.topk(x, 2, dim=dim, largest=False)[0],
    lambda x, dim: torch.kthvalue(x, 2, dim=dim)[0],
    lambda x, dim: torch.median(x, dim=dim)[0],
]
REDUCTIONS = [
    lambda x, dim: x.max(dim),
    lambda x, dim: x.min(dim, keepdim=True),
    lambda x, dim: x.amax(dim),
    lambda x, dim: x.argmax(dim),
    lambda x, dim: x.cummax(dim),
    lambda x, dim: x.sum(dim),
    lambda x, dim: x.prod(dim),
    lambda x, dim: x.cumsum(dim),
    lambda x, dim: x.any(dim),
    lambda x, dim: x.count_nonzero(dim),
]


@settings
@hypothesis.given(st.sampled_from(SORTS), DTYPES, st.integers(-2, 1))
def test_sorting(function, dtype, dim):
    torch.manual_seed(0)
    # No ties where torch does not promise their order.
    x = torch.randperm(20).reshape(4, 5).to(dtype)
    assert_like_torch(lambda x: function(x, dim), x, rtol=1e-3)


@settings
@hypothesis.given(st.sampled_from(REDUCTIONS), DTYPES, st.integers(-2, 1))
def test_reductions_with_ties(function, dtype, dim):
    torch.manual_seed(0)
    assert_like_torch(lambda x: function(x, dim), torch.randint(0, 3, (4, 5)).to(dtype), rtol=1e-3, atol=1e-3)


@settings
@hypothesis.given(
    st.sampled_from([torch.var, torch.std, torch.var_mean, torch.std_mean]),
    st.sampled_from([None, 0, (0, 1), (-1,)]),
    st.integers(0, 2),
    st.booleans(),
)
def test_moments(function, dim, correction, keepdim):
    torch.manual_seed(0)
    assert_like_torch(lambda x: function(x, dim=dim, correction=correction, keepdim=keepdim), torch.randn(4, 3))


def test_searching():
    edges, values = torch.tensor([0.0, 1, 2, 2, 3]), torch.tensor([[-1.0, 0, 0.5], [2, 2.5, 9]])
    for right in (True, False):
        assert_like_torch(lambda v, e: torch.bucketize(v, e, right=right), values, edges, gradient=False)
        assert_like_torch(
            lambda v, e: torch.searchsorted(e.expand(2, 5), v, right=right), values, edges, gradient=False
        )
