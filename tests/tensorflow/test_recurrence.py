"""Which datasets repeat what they computed, and after how many elements."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from openipu.tensorflow.recurrence import Recurrence, recurrence

data = tf.data.Dataset
MANY = 60


def rows(count):
    return data.from_tensor_slices(np.arange(count, dtype=np.int64))


STEPS = st.one_of(
    st.integers(1, 4).map(lambda n: lambda d: d.batch(n, drop_remainder=True).map(lambda x: tf.reduce_sum(x))),
    st.integers(-1, 3).map(lambda n: lambda d: d.repeat(n)),
    st.integers(-1, 9).map(lambda n: lambda d: d.take(n)),
    st.integers(0, 5).map(lambda n: lambda d: d.skip(n)),
    st.just(lambda d: d.map(lambda x: x * 3 + 1, num_parallel_calls=2)),
    st.just(lambda d: d.prefetch(2)),
    st.just(lambda d: d.cache()),
    st.just(lambda d: d.with_options(tf.data.Options())),
    st.just(lambda d: data.zip((d, data.range(2, 9, 3).repeat())).map(lambda a, b: a + b)),
)


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 7), steps=st.lists(STEPS, max_size=5))
def test_elements_come_again_after_a_period(count, steps):
    dataset = rows(count)
    for step in steps:
        dataset = step(dataset)
    found = recurrence(dataset)
    assert found is not None
    elements = [int(e) for e in itertools.islice(dataset.as_numpy_iterator(), MANY)]
    assert len(elements) == min(found.total, MANY)
    assert found.period <= found.total
    assert all(a == b for a, b in zip(elements, elements[found.period :], strict=False))


@pytest.mark.parametrize(
    "made",
    [
        lambda: rows(4).shuffle(4).repeat(),
        lambda: data.from_generator(lambda: iter([1, 2]), output_signature=tf.TensorSpec((), tf.int64)).repeat(),
        lambda: rows(4).map(lambda x: x + tf.random.uniform((), 0, 9, tf.int64)).repeat(),
        lambda: rows(4).map(lambda x: tf.numpy_function(abs, [x], tf.int64, stateful=False)).repeat(),
        lambda: rows(4).map(lambda x: tf.py_function(abs, [x], tf.int64)).repeat(),
        lambda: (
            rows(4).map(lambda x: tf.cond(x > 1, lambda: tf.random.uniform((), 0, 9, tf.int64), lambda: x)).repeat()
        ),
        lambda: rows(4).filter(lambda x: x > 1).repeat(),
        lambda: rows(4).map(lambda x: x, num_parallel_calls=2, deterministic=False).repeat(),
        lambda: rows(4).repeat().with_options(_any_order()),
        lambda: rows(4).interleave(lambda x: rows(2)).repeat(),
    ],
)
def test_what_may_differ_from_time_to_time_is_asked_each_time(made):
    assert recurrence(made()) is None


def test_a_variable_in_a_map_may_change():
    variable = tf.Variable(1, dtype=tf.int64)
    assert recurrence(rows(4).map(lambda x: x + variable).repeat()) is None


def test_a_file_may_be_older(tmp_path):
    assert recurrence(rows(4).cache(str(tmp_path / "cache")).repeat()) is None


def test_batches_over_the_end_of_a_pass():
    assert recurrence(rows(6).repeat().batch(4, drop_remainder=True)) == Recurrence(3, math.inf)
    assert recurrence(rows(6).repeat(3).batch(4, drop_remainder=True)) == Recurrence(3, 4)
    assert recurrence(rows(6).repeat(3).batch(4)) is None


def test_datasets_of_a_graph():
    with tf.Graph().as_default():
        v1 = tf.compat.v1.data.Dataset
        dataset = v1.from_tensor_slices(np.zeros((6, 2), np.float32)).map(lambda x: x + 1)
        assert recurrence(dataset.batch(2, drop_remainder=True).repeat()) == Recurrence(3, math.inf)
        given_later = tf.compat.v1.placeholder(tf.float32, [None, 2])
        assert recurrence(v1.from_tensor_slices(given_later).repeat()) is None


def _any_order():
    options = tf.data.Options()
    options.deterministic = False
    return options
