"""Reading and writing at indices, like torch."""

import hypothesis
import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st

from tests.torch.aten.compare import assert_like_torch

settings = hypothesis.settings(derandomize=True, max_examples=8, deadline=None)


@settings
@hypothesis.given(st.integers(-3, 2), st.lists(st.integers(1, 3), min_size=3, max_size=3))
def test_gather_and_scatter_along_any_dimension(dim, sizes):
    torch.manual_seed(0)
    x, index = torch.randn(3, 4, 3), torch.randint(0, 3, sizes)
    source = torch.randn(sizes)
    assert_like_torch(lambda x, i: torch.gather(x, dim, i), x, index)
    assert_like_torch(lambda x, s, i: torch.scatter_add(x, dim, i, s), x, source, index)


@settings
@hypothesis.given(st.sampled_from(["sum", "prod", "mean", "amax", "amin"]), st.booleans(), st.integers(0, 1))
def test_scatter_and_index_reduce(reduce, include_self, dim):
    torch.manual_seed(0)
    x, source = torch.randn(3, 4), torch.randn(3, 4)
    index = torch.randint(0, 3, (3, 4))
    assert_like_torch(lambda x, s: torch.scatter_reduce(x, dim, index, s, reduce, include_self=include_self), x, source)
    if reduce != "sum":
        rows = torch.tensor([0, 2, 0, 1])[: source.shape[dim]]
        assert_like_torch(
            lambda x, s: torch.index_reduce(x, dim, rows, s, reduce, include_self=include_self), x, source
        )


MASK = torch.tensor([[True, False, True], [False, False, True]])
ROWS = torch.tensor([1, 0, -1])
READS = {
    "rows": lambda x: x[ROWS],
    "columns": lambda x: x[:, ROWS],
    "pairs": lambda x: x[torch.tensor([0, 1]), torch.tensor([2, -1])],
    "apart": lambda x: x[torch.tensor([0, 1]), :, torch.tensor([3, 0])],
    "new axis": lambda x: x[:, None, ..., 1:3],
    "steps": lambda x: x[:, ::2, 1::2],
    "select": lambda x: x.select(2, -1),
    "take": lambda x: torch.take(x, torch.tensor([0, -1, 7])),
    "along": lambda x: torch.take_along_dim(x, x.argsort(2), 2),
}
WRITES = {
    "rows": lambda x, y: x.index_put((torch.tensor([1, 0]),), y[[0, 1]] * 2),
    "accumulate": lambda x, y: x.index_put((torch.tensor([1, 1]),), y, accumulate=True),
    "mask": lambda x, y: x.masked_fill(MASK[..., None], 3.0) * y,
    "mask of rows": lambda x, y: _written(x, MASK, torch.tensor(2.5)) * y,
    "mask with a row": lambda x, y: _written(x, MASK, y[0, 0]),
    "slice": lambda x, y: _written(x, (slice(None), slice(1, 3)), y[:, 1:3] * 2),
    "index_add": lambda x, y: x.index_add(1, ROWS % 3, y, alpha=2),
    "index_copy": lambda x, y: x.index_copy(1, torch.tensor([2, 0, 1]), y),
    "index_fill": lambda x, y: x.index_fill(2, torch.tensor([1, 3]), 7.0) * y,
    "masked_scatter": lambda x, y: x.masked_scatter(MASK[..., None], y),
    "roll and flip": lambda x, y: x.roll((1, 2), (0, 2)).flip(1) * y,
    "tril": lambda x, y: x.tril() + y.triu(1),
    "where": lambda x, y: torch.where(x > y, x, y),
}


def _written(x, place, value):
    x = x.clone()
    x[place] = value
    return x


@pytest.mark.parametrize("name", READS)
def test_reads(name):
    assert_like_torch(READS[name], torch.randn(2, 3, 4))


@pytest.mark.parametrize("name", WRITES)
def test_writes(name):
    assert_like_torch(WRITES[name], torch.randn(2, 3, 4), torch.randn(2, 3, 4))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
def test_embeddings(mode, padding):
    weight, index = torch.randn(6, 3), torch.tensor([[0, 2, 5], [2, 1, 1]])
    assert_like_torch(lambda w: F.embedding(index, w, padding_idx=padding), weight)
    assert_like_torch(lambda w: F.embedding_bag(index, w, mode=mode, padding_idx=padding), weight)
    offsets = torch.tensor([0, 2])
    assert_like_torch(lambda w: F.embedding_bag(index.reshape(-1), w, offsets, mode=mode, padding_idx=padding), weight)


def test_one_hot():
    assert_like_torch(lambda i: F.one_hot(i, 5), torch.tensor([[0, 4], [2, 2]]), gradient=False)
