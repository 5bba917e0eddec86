"""`poptorch.DataLoader`: batch sizes, modes, leftovers and refusals."""

import copy

import pytest
import torch

import poptorch
from tests.torch.data.datasets import Failing, Modules, Numbers, Stream, nothing

Mode = poptorch.DataLoaderMode


def options(iterations=1, replicas=1, accumulation=1):
    made = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    made.Training.gradientAccumulation(accumulation)
    return made


def labels(loader):
    return [batch[1].tolist() for batch in loader]


def flat(lists):
    return [value for values in lists for value in values]


def test_a_batch_is_what_one_call_takes():
    made = options(2, 4, 3).inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    loader = poptorch.DataLoader(made, Numbers(100), batch_size=2)
    assert loader.combinedBatchSize == 2 * 2 * 2 * 3
    assert loader.options is made
    assert len(loader) == 100 // 24
    vectors, numbers = next(iter(loader))
    assert vectors.shape == (24, 3) and numbers.tolist() == list(range(24))


def test_the_options_freeze():
    made = options()
    poptorch.DataLoader(made, Numbers(4))
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        made.deviceIterations(2)
    with pytest.raises(AssertionError, match=r"Expected an instance of poptorch\.Options"):
        poptorch.DataLoader(None, Numbers(4))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", list(Mode))
def test_all_modes_give_the_same_batches_in_every_epoch(mode, workers):
    loader = poptorch.DataLoader(options(2), Numbers(11), batch_size=2, mode=mode, num_workers=workers)
    for _ in range(2):
        assert labels(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(loader) == 2
    assert loader.persistent_workers == (workers > 0)
    loader.terminate()


@pytest.mark.parametrize("mode", list(Mode))
def test_an_incomplete_batch_comes_only_if_asked_for(mode, capsys):
    loader = poptorch.DataLoader(options(2), Numbers(11), batch_size=2, mode=mode, drop_last=False)
    assert "batch size of 3" in capsys.readouterr().err
    for _ in range(2):
        assert labels(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert len(loader) == 3
    loader.terminate()


@pytest.mark.parametrize("mode", list(Mode))
def test_shuffled_epochs_differ_and_a_seed_repeats_them(mode):
    def epochs():
        torch.manual_seed(5)
        loader = poptorch.DataLoader(options(), Numbers(40), batch_size=8, shuffle=True, mode=mode)
        found = [flat(labels(loader)), flat(labels(loader))]
        loader.terminate()
        return found

    first, second = epochs()
    assert first != second and sorted(first) == sorted(second) == list(range(40))
    assert epochs() == [first, second]


def test_a_generator_goes_along_into_the_worker():
    generator = torch.Generator().manual_seed(3)
    expected = torch.utils.data.DataLoader(Numbers(8), 4, shuffle=True, generator=generator.clone_state())
    loader = poptorch.DataLoader(options(), Numbers(8), 4, shuffle=True, generator=generator, mode=Mode.Async)
    assert labels(loader) == labels(expected)
    loader.terminate()


@pytest.mark.parametrize("shuffle", [False, True])
def test_tensors_come_as_from_the_loader_of_torch(shuffle):
    dataset = torch.utils.data.TensorDataset(torch.randn(10, 2, 3).half(), torch.arange(10))
    torch.manual_seed(1)
    expected = list(torch.utils.data.DataLoader(dataset, batch_size=4, shuffle=shuffle, drop_last=True))
    torch.manual_seed(1)
    received = list(poptorch.DataLoader(options(2), dataset, batch_size=2, shuffle=shuffle))
    assert len(received) == len(expected) == 2
    for ours, theirs in zip(received, expected, strict=True):
        assert type(ours) is type(theirs)
        assert [x.dtype for x in ours] == [x.dtype for x in theirs]
        assert all(map(torch.equal, ours, theirs))
    # A batch is the program's own: what it does with it does not reach the dataset.
    before = dataset.tensors[0].clone()
    for pictures, _ in received:
        pictures.zero_()
    assert torch.equal(dataset.tensors[0], before)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(6, 3).bfloat16(),
        torch.randn(6, 3, dtype=torch.complex64).conj(),
        torch.randn(3, 6).t(),
        torch.randn(6, 3)[:, ::2],
        torch.randn(1, 3).expand(6, 3),
        torch.randn(6, 0),
        torch.arange(6) % 2 == 0,
        torch.randn(6, 3, requires_grad=True),
    ],
    ids=["bfloat16", "conjugated", "transposed", "strided", "expanded", "empty", "bool", "differentiated"],
)
def test_rows_of_any_tensor_are_gathered_as_torch_gathers_them(tensor):
    dataset, chosen = torch.utils.data.TensorDataset(tensor), [[0, -1, 2, 2], [5, 3, -6, 1]]
    received = [x for (x,) in poptorch.DataLoader(options(), dataset, batch_sampler=chosen)]
    for ours, rows in zip(received, chosen, strict=True):
        assert torch.equal(ours, tensor[rows])
        assert ours.is_contiguous() and ours.requires_grad == tensor.requires_grad


def test_a_row_that_is_not_there_is_refused():
    dataset = torch.utils.data.TensorDataset(torch.arange(6))
    with pytest.raises(IndexError, match="out of bounds"):
        list(poptorch.DataLoader(options(), dataset, batch_sampler=[[0, 6]]))


def test_a_dataset_that_loads_its_samples_in_its_own_way_is_asked_for_each():
    class Negated(torch.utils.data.TensorDataset):
        def __getitem__(self, index):
            return tuple(-value for value in super().__getitem__(index))

    loader = poptorch.DataLoader(options(2), Negated(torch.arange(4)), batch_size=2)
    assert [x.tolist() for (x,) in loader] == [[0, -1, -2, -3]]

    plain = torch.utils.data.TensorDataset(torch.arange(4))
    loader = poptorch.DataLoader(options(2), plain, batch_size=2, collate_fn=lambda samples: len(samples))
    assert list(loader) == [4]


def test_rebatching_loses_one_batch_in_all_instead_of_one_per_worker():
    found = {}
    for mode in (Mode.Async, Mode.AsyncRebatched):
        loader = poptorch.DataLoader(
            options(), Stream(100), batch_size=4, num_workers=7, mode=mode, worker_init_fn=nothing
        )
        found[mode] = flat([batch.tolist() for batch in loader])
        loader.terminate()
    assert len(found[Mode.Async]) == 7 * (14 // 4) * 4
    assert sorted(found[Mode.AsyncRebatched]) == list(range(100))


def test_workers_may_load_less_than_a_whole_batch_at_once():
    loader = poptorch.DataLoader(
        options(5), Numbers(23), batch_size=2, mode=Mode.AsyncRebatched, rebatched_worker_size=3
    )
    assert labels(loader) == [list(range(10)), list(range(10, 20))]
    assert loader.combinedBatchSize == 10 and len(loader) == 2
    loader.terminate()


def test_rebatching_refusals():
    with pytest.raises(AssertionError, match="rebatched_worker_size must not be larger"):
        poptorch.DataLoader(options(), Numbers(8), 4, mode=Mode.AsyncRebatched, rebatched_worker_size=5)
    with pytest.raises(AssertionError, match="manually specify the rebatched_size in async_options"):
        poptorch.DataLoader(options(), Numbers(8), 4, mode=Mode.AsyncRebatched, async_options={"rebatched_size": 2})


def test_samples_pass_through_without_a_batch_size():
    loader = poptorch.DataLoader(options(4), Numbers(3), batch_size=None)
    assert loader.combinedBatchSize is None
    assert [label for _, label in loader] == [0, 1, 2]
    with pytest.raises(AttributeError, match="batch_size=None has no options"):
        _ = loader.options


@pytest.mark.parametrize("mode", [Mode.Sync, Mode.Async])
def test_batches_of_a_sampler_are_joined(mode):
    sampler = torch.utils.data.BatchSampler(range(10), batch_size=2, drop_last=True)
    loader = poptorch.DataLoader(options(2), Numbers(10), batch_sampler=sampler, mode=mode)
    assert loader.combinedBatchSize == 4
    assert len(loader) == 5
    assert labels(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    loader.terminate()
    rest = poptorch.DataLoader(options(2), Numbers(10), batch_sampler=sampler, drop_last=False)
    assert labels(rest)[-1] == [8, 9]


def test_a_sampler_excludes_sizes_shuffling_and_partitioning():
    sampler = torch.utils.data.BatchSampler(range(10), batch_size=2, drop_last=True)
    for wrong in ({"batch_size": 2}, {"shuffle": True}):
        with pytest.raises(poptorch.Error, match="mutually exclusive with batch_size, shuffle"):
            poptorch.DataLoader(options(), Numbers(10), batch_sampler=sampler, **wrong)
    made = options()
    made.Distributed.configureProcessId(0, 2)
    with pytest.raises(poptorch.Error, match="mutually exclusive with auto_distributed_partitioning=True"):
        poptorch.DataLoader(made, Numbers(10), batch_sampler=sampler)


def test_iterable_datasets(capsys):
    loader = poptorch.DataLoader(options(2), Stream(9), batch_size=2)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(TypeError):
        len(loader)
    poptorch.DataLoader(options(), Stream(9), num_workers=2)
    assert "returned 2 times" in capsys.readouterr().err
    made = options()
    made.Distributed.configureProcessId(0, 2)
    with pytest.raises(AssertionError, match="auto_distributed_partitioning not supported for IterableDataset"):
        poptorch.DataLoader(made, Stream(9))


def partitions(processes, count, batch, epochs=1, **arguments):
    found = []
    for process in range(processes):
        made = options(2).randomSeed(7)
        made.Distributed.configureProcessId(process, processes)
        loader = poptorch.DataLoader(made, Numbers(count), batch_size=batch, **arguments)
        found.append([flat(labels(loader)) for _ in range(epochs)])
        loader.terminate()
    return found


def test_processes_get_blocks_of_whole_batches():
    assert partitions(3, 40, 2) == [[list(range(12 * p, 12 * p + 12))] for p in range(3)]


def test_without_dropping_blocks_differ_by_one_at_most():
    found = [epochs[0] for epochs in partitions(3, 11, 1, drop_last=False)]
    assert flat(found) == list(range(11))
    assert {len(block) for block in found} == {3, 4}


@pytest.mark.parametrize("arguments", [{}, {"num_workers": 2}, {"mode": Mode.Async}])
def test_processes_share_one_shuffled_order(arguments):
    found = partitions(2, 22, 2, epochs=2, shuffle=True, **arguments)
    generator = torch.Generator().manual_seed(7)
    for epoch in range(2):
        order = torch.randperm(22, generator=generator).tolist()
        shift = 22 % 8 if epoch else 0
        for process in range(2):
            start = process * 8 + shift
            assert found[process][epoch] == order[start : start + 8]


def test_partitioning_needs_a_seed_and_a_batch_size():
    made = options()
    made.Distributed.configureProcessId(1, 2)
    with pytest.raises(AssertionError, match=r"you must set poptorch\.Options\.randomSeed"):
        poptorch.DataLoader(made, Numbers(8), shuffle=True)
    with pytest.raises(AssertionError, match="auto_distributed_partitioning needs a batch_size"):
        poptorch.DataLoader(made, Numbers(8), batch_size=None)
    loader = poptorch.DataLoader(made, Numbers(8), auto_distributed_partitioning=False)
    assert len(loader) == 8


def test_workers_load_neither_jax_nor_tensorflow():
    for workers in (0, 1):
        loader = poptorch.DataLoader(options(), Modules(1), mode=Mode.Async, num_workers=workers)
        assert next(iter(loader)).tolist() == [[False, False, False]]
        loader.terminate()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", [Mode.Sync, Mode.Async])
def test_workers_can_be_forked_while_jax_is_loaded(mode):
    import jax.numpy as jnp

    jnp.ones(3).sum().block_until_ready()
    start = {"sharing_strategy": poptorch.SharingStrategy.Fork} if mode is Mode.Async else None
    loader = poptorch.DataLoader(options(), Numbers(8), 4, mode=mode, num_workers=2, async_options=start)
    assert labels(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    loader.terminate()


def test_an_error_in_the_dataset_reaches_the_program(capsys):
    for workers in (0, 2):
        with pytest.raises(poptorch.Error, match="worker thread failed to start"):
            poptorch.DataLoader(options(), Failing(9, 0), 2, mode=Mode.Async, num_workers=workers)
        loader = poptorch.DataLoader(options(), Failing(9, 4), 2, mode=Mode.Async, num_workers=workers)
        with pytest.raises(AssertionError, match="An error occurred in the data fetcher"):
            labels(loader)
        assert "this sample is broken" in capsys.readouterr().err


def test_an_asynchronous_loader_goes_with_its_last_reference():
    loader = poptorch.DataLoader(options(), Numbers(9), 2, mode=Mode.Async, num_workers=1)
    process = loader._accessor._process
    next(iter(loader))
    del loader
    assert process._closed


def test_a_copy_of_a_loader_loads_by_itself():
    loader = poptorch.DataLoader(options(), Numbers(4), 2, mode=Mode.Async)
    assert labels(copy.copy(loader)) == [[0, 1], [2, 3]]
    loader.terminate()
