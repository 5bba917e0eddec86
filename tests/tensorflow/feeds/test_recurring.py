"""An infeed whose elements come again gives the same elements as one that asks its dataset for each."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from openipu.runtime import tables
from openipu.tensorflow.elements import Elements
from openipu.tensorflow.feeds.reader import Reader
from openipu.tensorflow.feeds.recurring import RecurringReader
from openipu.tensorflow.recurrence import recurrence

ROWS = np.arange(21, dtype=np.float32).reshape(7, 3)


def readers(dataset):
    specs = tf.nest.flatten(dataset.element_spec)
    found = recurrence(dataset)
    assert found is not None and RecurringReader.can_hold(found, specs)
    return Reader(Elements(dataset), specs, "plain"), RecurringReader(Elements(dataset), specs, "recurring", found)


def asked(reader, call):
    """What one call gives: values, or the kind of error."""
    kind, steps, replicas = call
    try:
        if kind == "block":
            return [part.tolist() for part in reader.block(steps, replicas)]
        held = []
        reader.offer(steps, lambda elements: held.extend(elements) or kind != "leave")
        if kind == "back":
            reader.give_back(held[1:])
        return [[part.tolist() for part in element] for element in held]
    except tf.errors.OpError as error:
        return type(error)


CALLS = st.tuples(st.sampled_from(["block", "take", "leave", "back"]), st.integers(1, 9), st.sampled_from([1, 2, 4]))


@settings(max_examples=40, deadline=None)
@given(calls=st.lists(CALLS, max_size=8), times=st.sampled_from([-1, 4, 5]), batch=st.integers(1, 3))
def test_every_way_to_ask_gives_the_same(calls, times, batch):
    dataset = tf.data.Dataset.from_tensor_slices((ROWS, np.arange(7))).repeat(times).batch(batch, drop_remainder=True)
    plain, recurring = readers(dataset)
    for call in calls:
        assert asked(recurring, call) == asked(plain, call)


def test_elements_that_cannot_be_computed_are_left_out_each_time():
    dataset = tf.data.Dataset.range(7).map(lambda i: 12 // (i - 4))
    plain, recurring = readers(dataset.repeat())
    calls = [("block", 1, 1), ("block", 1, 1), *[("block", 2, 1)] * 12]
    given = [asked(recurring, call) for call in calls]
    assert given == [asked(plain, call) for call in calls]
    assert given.count(tf.errors.InvalidArgumentError) > 1


def test_blocks_are_parts_of_one_table():
    _, reader = readers(tf.data.Dataset.from_tensor_slices(ROWS).repeat())
    first, _, third = (reader.block(3, 1)[0] for _ in range(3))
    again = [reader.block(3, 1)[0] for _ in range(5)][-1]
    np.testing.assert_array_equal(third[0], ROWS[[6, 0, 1]])
    assert np.shares_memory(first, again)


def test_a_table_has_a_largest_size(monkeypatch):
    dataset = tf.data.Dataset.from_tensor_slices(ROWS).repeat()
    found, specs = recurrence(dataset), [dataset.element_spec]
    monkeypatch.setattr("openipu.tensorflow.feeds.recurring.LARGEST", ROWS.nbytes)
    assert RecurringReader.can_hold(found, specs)
    monkeypatch.setattr("openipu.tensorflow.feeds.recurring.LARGEST", ROWS.nbytes - 1)
    assert not RecurringReader.can_hold(found, specs)
    assert tables.LARGEST == 2**30


def test_who_waits_for_a_reader_that_is_closed_is_told():
    _, reader = readers(tf.data.Dataset.from_tensor_slices(ROWS).repeat())
    reader.close()
    with pytest.raises(tf.errors.CancelledError, match="deleted or started anew"):
        reader.block(1, 1)


def test_shapes_of_tensorflow_1():
    tf.compat.v1.disable_v2_tensorshape()
    try:
        _, reader = readers(tf.data.Dataset.from_tensor_slices(ROWS).repeat())
        np.testing.assert_array_equal(reader.block(3, 1)[0][0], ROWS[:3])
    finally:
        tf.compat.v1.enable_v2_tensorshape()
