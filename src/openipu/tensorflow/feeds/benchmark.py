"""How fast a data pipeline delivers elements, measured without a program."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from openipu.tensorflow.boundary import plain_iterator
from openipu.tensorflow.feeds.infeed import IPUInfeedQueue

log = logging.getLogger("openipu.tensorflow")


def dataset_benchmark(
    dataset: tf.data.Dataset,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    apply_debug_options: bool = True,
    do_memcpy: bool = True,
    *,
    apply_options: bool = True,
) -> tf.Tensor:
    """Measure a dataset.

    Args:
      dataset: what to measure.
      number_of_epochs, elements_per_epochs: how often, and of how many elements, a time is taken.
      print_stats: log the rate of every epoch.
      apply_debug_options, apply_options: ignored.
      do_memcpy: copy every element, as a transfer to the device would.

    Returns:
      A scalar string tensor: JSON with the elements, bytes, seconds and rates of every epoch.
    """
    return _measured(lambda: plain_iterator(dataset), number_of_epochs, elements_per_epochs, print_stats, do_memcpy)


def infeed_benchmark(
    infeed_queue: IPUInfeedQueue,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    do_memcpy: bool = True,
) -> tf.Tensor:
    """Measure the dataset of an infeed queue, as `dataset_benchmark` does; the queue's own position does not change."""
    return dataset_benchmark(
        infeed_queue.dataset, number_of_epochs, elements_per_epochs, print_stats, do_memcpy=do_memcpy
    )


def _measured(elements: Callable[[], Iterator[Any]], epochs: int, count: int, show: bool, copy: bool) -> tf.Tensor:
    if epochs < 1 or count < 1:
        raise ValueError(
            "number_of_epochs and elements_per_epochs must be positive. "
            f"Received: number_of_epochs={epochs}, elements_per_epochs={count}."
        )

    def measure() -> str:
        given = elements()
        return json.dumps({"epochs": [_epoch(given, number, count, show, copy) for number in range(epochs)]})

    if tf.executing_eagerly():
        return tf.constant(measure())
    return tf.py_function(measure, [], tf.string)


def _epoch(elements: Iterator[Any], number: int, count: int, show: bool, copy: bool) -> dict[str, float]:
    started = time.perf_counter()
    size = 0
    for done in range(count):
        try:
            element = next(elements)
        except StopIteration:
            raise tf.errors.OutOfRangeError(
                None, None, f"The dataset ended after {number * count + done} elements. Repeat it, or measure fewer."
            ) from None
        parts = [np.array(part, copy=copy or None) for part in tf.nest.flatten(element)]
        size += sum(part.nbytes for part in parts)
    seconds = time.perf_counter() - started
    rate, bandwidth = count / seconds, size / seconds / 1e9
    if show:
        log.info("Epoch %d: %.1f elements/s, %.3f GB/s", number, rate, bandwidth)
    return {
        "elements_processed": count,
        "total_bytes_processed": size,
        "time_elapsed": seconds,
        "elements_per_second": rate,
        "bandwidth": bandwidth,
    }
