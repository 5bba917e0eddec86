"""Host data on its way to the device: in order, ahead of time, and never in the way of an end."""

import threading

import numpy as np
import pytest

from openipu.runtime import Gatherer, prefetch
from openipu.runtime.feed import aligned


def test_items_come_in_order_placed_by_another_thread():
    threads = set()

    def place(item):
        threads.add(threading.current_thread())
        return item * 10

    with prefetch(range(5), place) as items:
        assert list(items) == [0, 10, 20, 30, 40]
    assert threading.current_thread() not in threads


def test_no_more_items_are_fetched_than_may_wait():
    fetched = []
    taken = threading.Semaphore(0)

    def items():
        for item in range(100):
            fetched.append(item)
            taken.release()
            yield item

    with prefetch(items(), lambda item: item, depth=2) as placed:
        for _ in range(3):
            taken.acquire(timeout=60)
        assert next(placed) == 0
    assert len(fetched) <= 5


def test_an_error_of_the_data_comes_where_its_item_would():
    def items():
        yield 1
        raise OSError("disk")

    with prefetch(items(), lambda item: item) as placed:
        assert next(placed) == 1
        with pytest.raises(OSError, match="disk"):
            next(placed)


def test_an_end_does_not_wait_for_data_that_sleep():
    awake = threading.Event()

    def items():
        yield 1
        awake.wait(600)

    with pytest.raises(KeyboardInterrupt), prefetch(items(), lambda item: item) as placed:
        next(placed)
        raise KeyboardInterrupt
    assert not awake.is_set()
    awake.set()


def test_gathered_rows_stay_until_as_many_more_were_gathered():
    array = np.arange(20.0).reshape(10, 2)
    gather = Gatherer(array, buffers=3)
    rows = [gather(np.array([i, i + 1])) for i in range(3)]
    for i, found in enumerate(rows):
        np.testing.assert_array_equal(found, array[[i, i + 1]])
        assert found.ctypes.data % 64 == 0
    assert gather(np.array([7, 8])) is not rows[1]
    np.testing.assert_array_equal(rows[1], array[[1, 2]])


def test_aligned_memory_has_the_shape_and_type_it_was_asked_for():
    made = aligned((3, 5), np.dtype("float16"))
    assert made.shape == (3, 5) and made.dtype == np.float16 and made.ctypes.data % 64 == 0
