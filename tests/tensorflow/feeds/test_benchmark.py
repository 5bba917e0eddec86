"""The rate of a data pipeline."""

import json

import pytest
import tensorflow as tf
from tensorflow.python import ipu


def test_epochs_are_counted_and_timed(strategy):
    dataset = tf.data.Dataset.from_tensors({"a": tf.zeros(4), "b": tf.zeros(2, tf.int32)}).repeat(6)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    with strategy.scope():
        for measured in (
            ipu.dataset_benchmark.dataset_benchmark(dataset, 2, 3),
            ipu.dataset_benchmark.infeed_benchmark(infeed, 2, 3, print_stats=False, do_memcpy=False),
        ):
            epochs = json.loads(measured.numpy())["epochs"]
            assert [epoch["elements_processed"] for epoch in epochs] == [3, 3]
            for epoch in epochs:
                assert epoch["total_bytes_processed"] == 72
                assert epoch["elements_per_second"] == pytest.approx(3 / epoch["time_elapsed"])
                assert epoch["bandwidth"] == pytest.approx(72e-9 / epoch["time_elapsed"])
    with pytest.raises(tf.errors.OutOfRangeError, match="ended after 6 elements"):
        ipu.dataset_benchmark.dataset_benchmark(dataset, 2, 4)
    with pytest.raises(ValueError, match="must be positive"):
        ipu.dataset_benchmark.dataset_benchmark(dataset, 0, 4)
