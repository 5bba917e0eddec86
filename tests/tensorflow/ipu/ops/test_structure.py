"""Operations about the structure of a program: they change no values, but do what they promise."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

X = np.arange(6, dtype="float32").reshape(2, 3)


def value_and_gradient(function):
    """The result of a function of one tensor, and the gradient of the sum of its square."""

    def both(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
            loss = tf.reduce_sum(y * y)
        return y, tape.gradient(loss, x)

    return both


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ipu.control_flow_ops.barrier([x], insert_barrier_for_gradients=True)[0],
        lambda x: ipu.internal_ops.remap(x),
        lambda x: ipu.internal_ops.remap_deduce(x),
        lambda x: ipu.internal_ops.print_tensor(x),
        lambda x: ipu.pipelining_ops.recomputation_checkpoint({"a": x})["a"],
        lambda x: ipu.cross_replica_ops.assume_equal_across_replicas(x),
    ],
    ids=["barrier", "remap", "remap_deduce", "print_tensor", "recomputation_checkpoint", "assume_equal"],
)
def test_values_and_gradients_pass_through(on_device, function):
    value, gradient = on_device(value_and_gradient(function), X)
    np.testing.assert_array_equal(value, X)
    np.testing.assert_array_equal(gradient, 2 * X)


def test_outlined_functions_are_plain_calls(on_device):
    weight = tf.Variable(3.0)

    @ipu.outlined_function
    def triple(x):
        return {"y": x * weight}

    square = ipu.outlined_function(lambda x: x * x, unique_sharding=True, keep_input_layouts=False)

    @ipu.outlined_function(name="shifted")
    def shifted(x, by=1.0):
        return x + by

    value, gradient = on_device(value_and_gradient(lambda x: shifted(square(triple(x)["y"]), by=2.0)), X)
    np.testing.assert_allclose(value, 9 * X**2 + 2)
    np.testing.assert_allclose(gradient, 2 * (9 * X**2 + 2) * 18 * X)


def test_tensors_are_printed_to_stderr_on_every_replica(on_replicas, capfd):
    def program(x):
        with tf.name_scope("block"):
            return ipu.internal_ops.print_tensor(x, name="weights")

    on_replicas(2, program, np.array([[1.5, 2.0], [3.0, 4.25]], "float32"))
    printed = capfd.readouterr().err
    assert "block/print_tensor/weights (replica 0): [1.5 2. ]" in printed
    assert "block/print_tensor/weights (replica 1): [3.   4.25]" in printed


def test_expressions_are_functions_of_tensors(on_device):
    def expression(x, y):
        return ipu.vertex_edsl.condition(x > y, x * ipu.vertex_edsl.constant(2.0), ipu.vertex_edsl.let(y, lambda v: v))

    received = on_device(lambda x: ipu.custom_ops.codelet_expression_op(expression, x, 5 - x), X)
    np.testing.assert_array_equal(received, np.where(X > 5 - X, 2 * X, 5 - X))


def test_gradients_are_captured_on_their_way_back(on_device):
    def program(x):
        with ipu.eager.backprop.GradientCaptureTape() as tape:
            tape.watch(x)
            y, z = ipu.grad_util_ops.capture_upstream_gradients([3 * x, x], tag="here")
            loss = tf.reduce_sum(y * y) + 5 * tf.reduce_sum(z)
        gradient = tape.gradient(loss, x)
        return gradient, tape.captured_gradients["here"]

    gradient, captured = on_device(program, X)
    np.testing.assert_allclose(gradient, 18 * X + 5)
    np.testing.assert_allclose(captured, [6 * X, np.full_like(X, 5)])


def test_captures_need_a_context_and_a_tag_of_their_own():
    x = tf.constant(X)

    def gradient(*tags):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.add_n([tf.reduce_sum(ipu.grad_util_ops.capture_upstream_gradients(x, tag)) for tag in tags])
        return tape.gradient(loss, x)

    with pytest.raises(RuntimeError, match="outside of any capture context"):
        gradient("a")
    with ipu.eager.backprop.GradientCaptureContext() as context:
        gradient("a", "b")
        assert ipu.eager.backprop.num_gradient_collection_tapes() == 1
        with pytest.raises(ValueError, match="Gradient exists in the captured grads frame"):
            gradient("a")
    assert sorted(context.captured_gradients) == ["a", "b"]


def test_pipeline_options_are_checked():
    options = ipu.pipelining_ops.PipelineStageOptions(matmul_options={"availableMemoryProportion": "0.1"})
    assert options.get_proto().matmul_options == (("availableMemoryProportion", "0.1"),)
    with pytest.raises(TypeError, match="slice_options must be a dict"):
        ipu.pipelining_ops.PipelineStageOptions(slice_options=[1])
    assert ipu.pipelining_ops.PipelineSchedule.Interleaved == 1


def test_optimizer_outputs_are_checked():
    make = ipu.pipelining_ops.OptimizerFunctionOutput
    old, new = tf.compat.v1.train.GradientDescentOptimizer(0.1), tf.keras.optimizers.SGD()
    loss, variable = tf.constant(1.0), tf.Variable(1.0)
    assert make(old, loss, compute_gradients_kwargs={"var_list": [variable]}).opt is old
    assert make(new, loss, variables=[variable]).variables == [variable]
    with pytest.raises(RuntimeError, match="No variables to optimize"):
        make(new, loss)
    with pytest.raises(TypeError, match="loss must be a tensor"):
        make(old, 1.0)
    with pytest.raises(ValueError, match="for Keras optimizers"):
        make(old, loss, variables=[variable])
    with pytest.raises(ValueError, match=r"for tf\.compat\.v1\.train optimizers"):
        make(new, loss, variables=[variable], compute_gradients_args=[1])


def test_buffered_datasets_deliver_complete_groups():
    from tensorflow.python.ipu.data.ops.dataset_ops import BufferDataset

    dataset = BufferDataset(tf.data.Dataset.range(10), 4)
    assert [int(x) for x in dataset] == list(range(8))
    assert dataset.element_spec == tf.TensorSpec([], tf.int64)
