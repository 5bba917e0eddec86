"""TensorFlow functions become pure functions on arrays that name the variables they read and write."""

import jax
import numpy as np
import pytest
import tensorflow as tf

from openipu.errors import UnsupportedError
from openipu.tensorflow.capture.function import capture


def translated(*arguments):
    """What XLA makes of a captured function."""
    return capture(*arguments).lowered


def test_results_variables_and_constants():
    read, written, table = tf.Variable([1.0, 2.0]), tf.Variable(5.0), tf.constant([10.0, 20.0])

    def function(x, y):
        written.assign_add(tf.reduce_sum(x * read))
        return {"sum": x + table, "pair": (y, written.read_value())}

    captured = capture(function, [tf.TensorSpec(2), tf.TensorSpec((), tf.int32)], "test")
    assert captured.written == [written] and {id(v) for v in captured.used} == {id(read), id(written)}
    assert set(captured.structure) == {"sum", "pair"}
    values = {id(read): np.float32([3, 4]), id(written): np.float32(1)}
    results, new = captured([np.float32([1, 1]), np.int32(9)], values)
    assert float(new[id(written)]) == 8.0
    assert [np.asarray(r).tolist() for r in results] == [9, 8.0, [11.0, 21.0]]
    assert float(written) == 5.0


def test_a_captured_function_can_be_traced_and_mapped():
    captured = capture(lambda x: tf.nn.softmax(x), [tf.TensorSpec(3)], "softmax")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    mapped = jax.jit(jax.vmap(lambda row: captured([row], {})[0][0]))(x)
    np.testing.assert_allclose(mapped, tf.nn.softmax(x), rtol=1e-6)


def test_without_arguments_or_results():
    counter = tf.Variable(0, dtype=tf.int64)

    def count():
        counter.assign_add(1)

    captured = capture(count, [])
    assert captured.name == "count"
    with jax.enable_x64(True):
        results, new = captured([], {id(counter): np.int64(4)})
    assert results == [] and int(new[id(counter)]) == 5


def test_shapes_that_depend_on_data_are_refused_with_the_operation():
    def masked(x):
        return tf.reshape(tf.boolean_mask(x, x[:, 0] > 0), (-1, 2))

    with pytest.raises(UnsupportedError, match=r"Expected static shapes.*Reshape"):
        translated(masked, [tf.TensorSpec((3, 2))])


def test_what_cannot_be_compiled_is_refused_with_its_name():
    def printing(x):
        tf.print("x is", x)

    with pytest.raises(UnsupportedError, match=r"(?s)parse cannot be compiled for the IPU.*AsString"):
        translated(lambda x: tf.strings.to_number(tf.strings.as_string(x)), [tf.TensorSpec(2)], "parse")
    with pytest.raises(UnsupportedError, match="EagerPyFunc") as refused:
        translated(lambda x: tf.py_function(lambda v: v * 2, [x], tf.float32), [tf.TensorSpec(2)], "by_python")
    assert "File" not in str(refused.value)
    with pytest.raises(UnsupportedError, match=r"internal_ops\.print_tensor in place of tf\.print"):
        translated(printing, [tf.TensorSpec(2)])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2]), 0)
    with pytest.raises(UnsupportedError, match="look"):
        capture(table.lookup, [tf.TensorSpec(2, tf.int32)], "look")
