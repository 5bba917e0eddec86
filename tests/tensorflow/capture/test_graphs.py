"""What is read from a graph agrees with what XLA says of it, and tells functions apart by what they compute."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from openipu.tensorflow.capture.function import capture


def identity(function, *shapes):
    return capture(function, [tf.TensorSpec(shape) for shape in shapes], "function").graph.identity


def model(units=3):
    """A model with everything that has state: statistics, seeds, loops."""
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((6, 4)),
            layers.LSTM(5, return_sequences=True),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Flatten(),
            layers.Dense(units),
        ]
    )


def training(made):
    def gradients(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(made(x, training=True) ** 2)
        return tape.gradient(loss, made.trainable_variables)

    return gradients


def test_names_and_traces_do_not_matter():
    # Layers and functions of the second model have other names and numbers.
    assert identity(training(model()), (2, 6, 4)) == identity(training(model()), (2, 6, 4))


def test_the_order_of_names_does_not_matter():
    # TensorFlow sorts by name what only orders operations: dense_10 comes before dense_9.
    made = [
        keras.Sequential([keras.layers.Input((3,)), *(keras.layers.Dense(4, name=name) for name in names)])
        for names in (("dense_8", "dense_9"), ("dense_9", "dense_10"), ("b", "a"))
    ]
    assert len({identity(m, (2, 3)) for m in made}) == 1


@pytest.mark.parametrize("other", [lambda: identity(training(model(4)), (2, 6, 4)),
                                   lambda: identity(training(model()), (3, 6, 4)),
                                   lambda: identity(model(), (2, 6, 4))],
                         ids=["units", "batch", "inference"])  # fmt: skip
def test_other_models_are_told_apart(other):
    assert identity(training(model()), (2, 6, 4)) != other()


def loop(times, factor):
    def function(x):
        return tf.while_loop(lambda i, _: i < times, lambda i, h: (i + 1, h * factor), (0, x))[1]

    return function


def branch(first, second):
    return lambda x: tf.cond(x[0] > 0, lambda: first(x), lambda: second(x))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (lambda x: x + 1.0, lambda x: x + 2.0),
        (lambda x: x[0] - x[1], lambda x: x[1] - x[0]),
        (lambda x: (x, x * 2), lambda x: (x * 2, x)),
        (lambda x: tf.reduce_sum(x), lambda x: tf.reduce_sum(x, keepdims=True)),
        (lambda x: tf.cast(x, tf.float16), lambda x: tf.cast(x, tf.bfloat16)),
        (loop(3, 2.0), loop(4, 2.0)),
        (loop(3, 2.0), loop(3, 3.0)),
        (branch(tf.sin, tf.cos), branch(tf.cos, tf.sin)),
        (tf.function(lambda x: x + 1.0), tf.function(lambda x: x - 1.0)),
    ],
    ids=["constant", "wiring", "results", "attribute", "type", "condition", "body", "branches", "call"],
)
def test_what_is_computed_decides(one, two):
    assert identity(one, (3,)) == identity(one, (3,))
    assert identity(one, (3,)) != identity(two, (3,))


def agrees(captured):
    return (
        set(captured.lowered.aliases.values()) == set(captured.graph.written)
        and captured.lowered.needs_key == captured.graph.draws
    )


def test_what_a_model_writes_and_draws_is_known_without_xla():
    made = model()
    captured = capture(training(made), [tf.TensorSpec((2, 6, 4))], "training")
    written = {v.name for v in captured.written}
    assert {"moving_mean", "moving_variance"} <= {name.split("/")[-1].split(":")[0] for name in written}
    assert not {id(v) for v in captured.written} & {id(v.value) for v in made.trainable_variables}
    assert agrees(captured)
    assert not capture(made, [tf.TensorSpec((2, 6, 4))], "inference").written


@pytest.mark.parametrize(
    "function",
    [
        lambda x, v: x + tf.random.uniform((2,)),
        lambda x, v: x + tf.random.normal((2,)) + tf.random.truncated_normal((2,)),
        lambda x, v: x + tf.random.stateless_normal((2,), (1, 2)),
        lambda x, v: x + v,
        lambda x, v: v.assign(x),
        lambda x, v: v.scatter_nd_add([[0]], x[:1]),
        lambda x, v: tf.gather(v, [0, 1]),
        lambda x, v: tf.while_loop(lambda i: i < 2, lambda i: [i + tf.cast(v.assign_add(x)[0] > -9, tf.int32)], [0]),
        lambda x, v: tf.cond(x[0] > 0, lambda: v.assign_add(x) + 0, lambda: x),
        lambda x, v: tf.while_loop(lambda i, h: i < 2, lambda i, h: (i + 1, h + v), (0, x)),
    ],
)
def test_operations_that_write_or_draw(function):
    variable = tf.Variable([1.0, 2.0])
    assert agrees(capture(lambda x: function(x, variable), [tf.TensorSpec(2)], "function"))


def test_a_variable_that_only_seems_to_be_written_keeps_its_value():
    variable = tf.Variable([1.0, 2.0])
    captured = capture(lambda x: (variable.assign(x), x)[1], [tf.TensorSpec(2)], "function")
    held = captured.lowered
    held.aliases.clear()
    _, written = captured([np.float32([5, 6])], {id(variable): np.float32([1, 2])})
    assert written[id(variable)].tolist() == [1, 2]


def test_xla_is_not_asked_before_something_is_evaluated():
    captured = capture(lambda x: tf.strings.as_string(x), [tf.TensorSpec(2)], "text")
    assert captured.graph.identity
    with pytest.raises(Exception, match="cannot be compiled"):
        _ = captured.lowered
