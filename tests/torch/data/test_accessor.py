"""`AsynchronousDataAccessor`: epochs, buffers, structures, errors."""

import time

import pytest
import torch

import poptorch
from tests.torch.data.datasets import Counted, Items, Killed, Numbers, Pair, PairParser, Stuck

ITEMS = [torch.tensor([float(i)]) for i in range(5)]


@pytest.fixture
def access():
    """Makes accessors that are terminated after the test."""
    made = []

    def make(*arguments, **keywords):
        made.append(poptorch.AsynchronousDataAccessor(*arguments, **keywords))
        return made[-1]

    yield make
    for accessor in made:
        accessor.terminate()


@pytest.mark.parametrize("strategy", list(poptorch.SharingStrategy))
def test_every_way_of_starting_a_worker_gives_the_same_items(access, strategy):
    accessor = access(Items(*ITEMS), sharing_strategy=strategy)
    for _ in range(2):
        assert [item.item() for item in accessor] == [0, 1, 2, 3, 4]
    assert len(accessor) == 5


@pytest.mark.parametrize("load_indefinitely", [True, False])
def test_leaving_an_epoch_starts_the_next_from_the_beginning(access, load_indefinitely):
    accessor = access(Items(*ITEMS), buffer_size=2, load_indefinitely=load_indefinitely)
    for leave_after in (1, 3, 5, 2):
        for count, item in enumerate(accessor):
            assert item.item() == count
            if count + 1 == leave_after:
                break
    assert [item.item() for item in accessor] == [0, 1, 2, 3, 4]
    with pytest.raises(StopIteration):
        next(accessor)
    assert next(iter(accessor)).item() == 0


def test_an_iterator_that_was_not_used_is_not_lost(access):
    accessor = access(Items(*ITEMS))
    iter(accessor)
    assert [item.item() for item in accessor] == [0, 1, 2, 3, 4]


def test_items_are_views_that_the_next_items_overwrite(access):
    accessor = access(Items(*ITEMS), buffer_size=2)
    kept = list(accessor)
    assert len({item.data_ptr() for item in kept}) == 2
    assert [item.clone().item() for item in accessor] == [0, 1, 2, 3, 4]


def test_structures(access):
    a, b = torch.ones(2), torch.zeros(3, dtype=torch.int8)
    for given, kind in [((a, b), list), ([a, b], list), ({"x": a, "y": b}, dict), (a, torch.Tensor)]:
        (item,) = [item.copy() if kind is not torch.Tensor else item for item in access(Items(given))]
        assert isinstance(item, kind)
        found = list(item.values()) if kind is dict else [item] if kind is torch.Tensor else item
        expected = [a] if kind is torch.Tensor else [a, b]
        assert all(torch.equal(x, y) and x.dtype is y.dtype for x, y in zip(found, expected, strict=True))
    empty = next(access(Items([torch.ones(()), torch.ones(0, 3)])))
    assert [tuple(t.shape) for t in empty] == [(), (0, 3)]


def test_registered_types_cross_over(access):
    poptorch.registerCustomArgParser(Pair, PairParser())
    try:
        item = next(access(Items(Pair(torch.ones(2), torch.tensor(3)))))
        assert isinstance(item, Pair) and item.b.item() == 3
    finally:
        poptorch.registerCustomArgParser(Pair, None)


def test_what_is_not_a_flat_container_of_tensors_is_refused(access, capsys):
    for wrong in ((torch.ones(1), [torch.ones(1)]), [1], "text"):
        with pytest.raises(poptorch.Error, match="worker thread failed to start"):
            access(Items(wrong))
        assert "expects data to be organised as a flat 1D container of tensors" in capsys.readouterr().err


def test_all_items_must_look_like_the_first(access, capsys):
    accessor = access(Items(torch.ones(2), torch.ones(3)))
    with pytest.raises(AssertionError, match="An error occurred in the data fetcher"):
        list(accessor)
    assert "All items must have the shapes and types of the first one" in capsys.readouterr().err


def test_an_empty_dataset_is_refused(access, capsys):
    with pytest.raises(poptorch.Error, match="worker thread failed to start"):
        access(Items())
    assert "The Dataset is empty" in capsys.readouterr().err


def test_a_worker_that_dies_is_noticed(access):
    loader = poptorch.DataLoader(poptorch.Options(), Killed(9))
    with pytest.raises(AssertionError, match="An error occurred in the data fetcher"):
        list(access(loader))


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("early", "read_before"), [(False, 1), (True, 3)])
def test_preloading(access, early, read_before):
    read = torch.zeros((), dtype=torch.int64).share_memory_()
    accessor = access(Counted(10, read), buffer_size=3, early_preload=early, load_indefinitely=False)
    # One more is read than there is room for only once the program takes the first.
    until(lambda: read.item() >= read_before)
    time.sleep(0.2)
    assert read.item() == read_before
    assert len([item for item in accessor]) == 10
    time.sleep(0.2)
    assert read.item() == 10


def test_the_next_epoch_is_read_ahead_only_if_asked_for(access):
    read = torch.zeros((), dtype=torch.int64).share_memory_()
    accessor = access(Counted(4, read), buffer_size=3)
    assert len([item for item in accessor]) == 4
    until(lambda: read.item() > 4)


def test_rebatching(access):
    items = Items(torch.arange(3), torch.arange(3, 5), torch.arange(5, 12))
    assert [item.tolist() for item in access(items, rebatched_size=5)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    with pytest.raises(AssertionError, match="rebatched_size must be None or greater than 1"):
        access(items, rebatched_size=1)


def test_loaders_with_leftovers_need_rebatching(access):
    loader = poptorch.DataLoader(poptorch.Options().deviceIterations(2), Numbers(7), 2, drop_last=False)
    with pytest.raises(AssertionError, match="only works if 'rebatched_size' is specified too"):
        access(loader)
    assert [batch[1].tolist() for batch in access(loader, rebatched_size=4)] == [[0, 1, 2, 3], [4, 5, 6]]
    loader = poptorch.DataLoader(poptorch.Options(), Numbers(7), mode=poptorch.DataLoaderMode.Async)
    with pytest.raises(poptorch.Error, match="already uses an AsynchronousDataAccessor internally"):
        access(loader)
    loader.terminate()


def test_a_terminated_accessor_says_so(access):
    accessor = access(Items(*ITEMS))
    next(accessor)
    accessor.terminate()
    accessor.terminate()
    with pytest.raises(poptorch.Error, match="was terminated"):
        next(accessor)


def test_a_worker_that_hangs_is_ended(access, monkeypatch):
    monkeypatch.setattr("openipu.torch.data.accessor._PATIENCE", 0.2)
    accessor = access(poptorch.DataLoader(poptorch.Options(), Stuck(9)), early_preload=True)
    process = accessor._process
    accessor.terminate()
    assert process._closed


class Foreign(Items):
    """A class that the worker will not find where it says it is."""


def test_a_class_that_the_worker_cannot_import_is_explained(access, capsys, monkeypatch):
    monkeypatch.setattr(Foreign, "__module__", "__main__")
    monkeypatch.setattr("__main__.Foreign", Foreign, raising=False)
    with pytest.raises(poptorch.Error, match="worker thread failed to start"):
        access(Foreign(*ITEMS))
    assert "define its class in a module" in capsys.readouterr().err
    assert next(access(Foreign(*ITEMS), sharing_strategy=poptorch.SharingStrategy.Fork)).item() == 0


def test_the_iterable_must_be_picklable():
    with pytest.raises(Exception, match="pickle"):
        poptorch.AsynchronousDataAccessor(Items(lambda: None))
