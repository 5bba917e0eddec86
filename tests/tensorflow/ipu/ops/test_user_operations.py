"""Operations that programs find in native libraries run as functions that were registered for them."""

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from openipu.errors import UnsupportedError
from openipu.tensorflow.ops.user_operations import register_user_op

X, Y = np.array([1.0, 2.0, 3.0], np.float32), np.array([4.0, 5.0, 6.0], np.float32)
OUTS = {"output_types": [tf.float32, tf.float32], "output_shapes": [tf.TensorShape([3]), tf.TensorShape([])]}


@register_user_op("libproduct.so")
def product(inputs, attributes):
    x, y = inputs
    return float(attributes or 1) * x * y, jnp.sum(x)


def gradients(strategy, call):
    """What a function returns for X and Y, and the gradients of the sum of it."""

    @tf.function(jit_compile=True)
    def program(x, y):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            results = call([x, y])
            total = tf.add_n([tf.reduce_sum(result) for result in results])
        return results, tape.gradient(total, [x, y])

    results, found = strategy.run(program, (tf.constant(X), tf.constant(Y)))
    return [r.numpy() for r in results], [None if g is None else g.numpy() for g in found]


def test_jax_derives_the_gradient(strategy):
    def call(inputs):
        return ipu.custom_ops.precompiled_user_op(inputs, "/anywhere/libproduct.so", outs=OUTS, attributes="2")

    (first, second), found = gradients(strategy, call)
    np.testing.assert_allclose(first, 2 * X * Y)
    np.testing.assert_allclose(second, X.sum())
    np.testing.assert_allclose(found, [2 * Y + 1, 2 * X])


def test_only_the_wanted_inputs_have_gradients(strategy):
    def call(inputs):
        path = "libproduct.so"
        return ipu.custom_ops.precompiled_user_op(inputs, path, outs=OUTS, inputs_with_gradients=[1])

    _, (first, second) = gradients(strategy, call)
    assert first is None
    np.testing.assert_allclose(second, X)


def test_a_registered_gradient_gets_gradients_outputs_inputs_and_attributes(strategy):
    def gradient(upstream, outputs, inputs, attributes):
        assert attributes == "for the gradient"
        return upstream[0] * outputs[0] + inputs[1], None

    register_user_op("libown.so", "Mine", gradient)(lambda inputs, attributes: inputs[0] * 3)

    def call(inputs):
        outs = {"output_types": [tf.float32], "output_shapes": [[3]]}
        return ipu.custom_ops.precompiled_user_op(
            inputs, "libown.so", outs=outs, op_name="Mine", gradient_attributes="for the gradient"
        )

    (result,), (first, second) = gradients(strategy, call)
    np.testing.assert_allclose(result, 3 * X)
    np.testing.assert_allclose(first, 3 * X + Y)
    assert not second.any()


def test_an_operation_of_the_host_is_numpy(strategy):
    seen = []

    def gradient(upstream, outputs, inputs, attributes):
        return [upstream[0] * np.cos(inputs[0])]

    @register_user_op("libhost.so", "Callback", gradient, host=True)
    def sine(inputs, attributes):
        seen.append(type(inputs[0]))
        return [np.sin(inputs[0])]

    def call(inputs):
        outs = {"output_types": [tf.float32], "output_shapes": [[3]]}
        return ipu.custom_ops.cpu_user_operation(inputs[:1], "libhost.so", outs)

    (result,), (found, other) = gradients(strategy, call)
    np.testing.assert_allclose(result, np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(found, np.cos(X), rtol=1e-6)
    assert other is None and seen == [np.ndarray]


def test_what_is_refused(strategy):
    def run(path="libproduct.so", inputs=(X, Y), **kwargs):
        call = ipu.custom_ops.precompiled_user_op
        return strategy.run(tf.function(lambda: call(inputs, path, **{"outs": OUTS, **kwargs})))

    with pytest.raises(UnsupportedError, match=r"register_user_op\('libother.so', 'Build'\)"):
        run("/some/libother.so")
    with pytest.raises(ValueError, match="Expected attributes to be a 'str' type, but was int"):
        run(attributes=3)
    with pytest.raises(ValueError, match="'output_types' and 'output_shapes'"):
        run(outs={"output_types": []})
    with pytest.raises(ValueError, match="returned other outputs than the program says"):
        run(outs={"output_types": [tf.float32], "output_shapes": [[3]]})
