"""`poptorch.DataLoader`: torch's loader with batches of the size that one call of an executor takes."""

import contextlib
import math
from collections.abc import Sized
from typing import Any

import torch

from openipu.torch.data import items
from openipu.torch.data.accessor import AsynchronousDataAccessor
from openipu.torch.data.forking import quiet_fork
from openipu.torch.data.partition import Partition
from openipu.torch.data.rows import gather
from openipu.torch.enums import DataLoaderMode
from openipu.torch.exceptions import Error
from openipu.torch.logger import logger
from openipu.torch.options import Options


class DataLoader(torch.utils.data.DataLoader):
    """Loads batches for executors made with the same options.

    Args:
      options: the options, which become frozen.
      dataset: a map or iterable dataset.
      batch_size: rows of a micro-batch; None passes samples through as they are.
      shuffle: whether samples come in a random order.
      num_workers: processes that load samples.
      drop_last: whether an incomplete last batch is left out.
      persistent_workers: whether those processes live on between epochs; by default they do.
      auto_distributed_partitioning: whether each of several processes of a program gets its part of the dataset.
      mode: where batches are prepared.
      async_options: arguments for the `AsynchronousDataAccessor` of the asynchronous modes.
      rebatched_worker_size: rows that a worker loads at once in the mode AsyncRebatched.
      batch_sampler: lists of indices, one list per micro-batch.
      kwargs: further arguments of torch's loader.
    """

    def __init__(
        self,
        options: Options,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: bool | None = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: dict[str, Any] | None = None,
        rebatched_worker_size: int | None = None,
        batch_sampler: Any = None,
        **kwargs: Any,
    ) -> None:
        self._accessor: AsynchronousDataAccessor | None = None
        assert isinstance(options, Options), f"Expected an instance of poptorch.Options. Received: {type(options)}"
        # Not above: workers import this module, and have no need of JAX.
        from openipu.torch.program.batching import batching_of

        options._freeze()
        self._options = options
        self._drop_last = drop_last
        self._batches_per_call = batching_of(options, training=True).pieces
        self._user_sampler = batch_sampler is not None
        processes = options.Distributed.numProcesses
        if batch_sampler is not None:
            if batch_size != 1 or shuffle:
                raise Error("`batch_sampler` option is mutually exclusive with batch_size, shuffle.")
            if auto_distributed_partitioning and processes > 1:
                raise Error("`batch_sampler` option is mutually exclusive with auto_distributed_partitioning=True.")
            batch_size = getattr(batch_sampler, "batch_size", None) or 1
        self._combined = None if batch_size is None else batch_size * self._batches_per_call

        if isinstance(dataset, torch.utils.data.IterableDataset):
            _check_iterable(auto_distributed_partitioning, processes, num_workers, kwargs)
        else:
            if auto_distributed_partitioning and processes > 1:
                dataset = _partition(dataset, options, self._combined, drop_last, bool(shuffle))
                shuffle = False
            if not drop_last and not self._user_sampler:
                _warn_of_rest(dataset, self._combined)

        mode, worker_rows = self._mode(mode, rebatched_worker_size, async_options)
        self._rebatches = mode is DataLoaderMode.AsyncRebatched
        if self._user_sampler:
            sampling: dict[str, Any] = {"batch_sampler": batch_sampler}
        else:
            rest = drop_last and not self._rebatches and self._combined is not None
            # Torch refuses even shuffle=False with an iterable dataset of data pipes; None says nothing.
            sampling = {"batch_size": worker_rows, "shuffle": shuffle or None, "drop_last": rest}
        super().__init__(
            dataset,
            num_workers=num_workers,
            persistent_workers=num_workers > 0 if persistent_workers is None else persistent_workers,
            **sampling,
            **kwargs,
        )
        if mode is not DataLoaderMode.Sync:
            rows = self._combined if self._rebatches else None
            self._accessor = AsynchronousDataAccessor(self, rebatched_size=rows, **(async_options or {}))

    @property
    def combinedBatchSize(self) -> int | None:
        """Rows of what the loader yields: what one call of an executor takes."""
        return self._combined

    @property
    def options(self) -> Options:
        """The options given."""
        if self._combined is None:
            raise AttributeError("A DataLoader with batch_size=None has no options: its samples are not batched.")
        return self._options

    def terminate(self) -> None:
        """Stops the process of the asynchronous modes."""
        if self._accessor is not None:
            self._accessor.terminate()

    def __len__(self) -> int:
        if not self._rebatches or self._combined is None:
            return super().__len__()
        length = len(self.dataset)  # pyright: ignore[reportArgumentType]
        return length // self._combined if self._drop_last else math.ceil(length / self._combined)

    def __iter__(self) -> Any:
        if self._accessor is not None:
            return iter(self._accessor)
        if isinstance(self.dataset, Partition):
            self.dataset.new_epoch()
        with quiet_fork():
            batches = gather(self, super().__iter__())
        if self._user_sampler and not self._rebatches and self._batches_per_call > 1:
            return items.groups(batches, self._batches_per_call, keep_rest=not self._drop_last)
        return batches

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.terminate()

    def __getstate__(self) -> dict[str, Any]:
        # The worker of the asynchronous modes gets a loader that loads by itself.
        return {**self.__dict__, "_accessor": None, "_iterator": None}

    def _openipu_keeps_rest(self, rebatched_size: int | None) -> bool:
        """What an accessor made for this loader asks: whether an incomplete item at the end is passed on."""
        if self._accessor is not None:
            raise Error(
                "The DataLoader already uses an AsynchronousDataAccessor internally. Iterate over the DataLoader "
                "itself, or create it with mode=poptorch.DataLoaderMode.Sync."
            )
        keeps = not self._drop_last
        assert not keeps or rebatched_size is not None or (self.combinedBatchSize or 1) <= 1, (
            "The 'drop_last=False' option from the DataLoader only works if 'rebatched_size' is specified too."
        )
        return keeps

    def _mode(
        self, mode: DataLoaderMode, worker_rows: int | None, async_options: dict[str, Any] | None
    ) -> tuple[DataLoaderMode, int | None]:
        """The mode that is meant, and the rows that torch's loader makes at once."""
        combined = self._combined
        # Shared memory has room for whole batches only, so that incomplete ones need cutting anew.
        if mode == DataLoaderMode.Async and not self._drop_last and combined is not None and combined > 1:
            mode = DataLoaderMode.AsyncRebatched
        if mode != DataLoaderMode.AsyncRebatched:
            return DataLoaderMode(mode), combined
        assert combined is not None, "DataLoaderMode.AsyncRebatched needs a batch_size. Received: batch_size=None"
        assert "rebatched_size" not in (async_options or {}), (
            "You cannot use DataLoaderMode.AsyncRebatched and manually specify the rebatched_size in async_options"
        )
        if combined == 1:
            return DataLoaderMode.Async, combined
        rows = combined if worker_rows is None else worker_rows
        assert 0 < rows <= combined, (
            f"rebatched_worker_size must not be larger than the combined batch size ({combined}). Received: {rows}"
        )
        return DataLoaderMode(mode), rows


def _check_iterable(partition: bool, processes: int, num_workers: int, kwargs: dict[str, Any]) -> None:
    assert not (partition and processes > 1), "auto_distributed_partitioning not supported for IterableDataset"
    if num_workers > 1 and kwargs.get("worker_init_fn") is None:
        logger.warning(
            "An IterableDataset with %d workers and no worker_init_fn: each element will be returned %d times. "
            "Give a worker_init_fn that lets every worker load its own part.",
            num_workers,
            num_workers,
        )


def _partition(dataset: Any, options: Options, combined: int | None, drop_last: bool, shuffle: bool) -> Partition:
    assert combined is not None, "auto_distributed_partitioning needs a batch_size. Received: batch_size=None"
    assert not shuffle or options.exists("random_seed"), (
        "When using auto_distributed_partitioning you must set poptorch.Options.randomSeed() to ensure that tensors "
        "are in the same order in all processes."
    )
    processes = options.Distributed
    seed = options.random_seed if shuffle else None
    return Partition(dataset, processes.processId, processes.numProcesses, combined, drop_last, seed)


def _warn_of_rest(dataset: Any, combined: int | None) -> None:
    if not combined or combined == 1 or not isinstance(dataset, Sized):
        return
    rest = len(dataset) % combined
    if rest:
        logger.warning(
            "The last tensor will have a batch size of %d instead of %d, because drop_last=False and %d samples are "
            "not a multiple of %d. An executor that was compiled for %d refuses it.",
            rest,
            combined,
            len(dataset),
            combined,
            combined,
        )
