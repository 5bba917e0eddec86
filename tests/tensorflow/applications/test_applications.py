"""Programs compiled to a file run in another process, called from many threads."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from openipu.errors import UnsupportedError

runtime = ipu.embedded_runtime
compile_op = ipu.application_compile_op.experimental_application_compile_op
W = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def counting(strategy):
    """A program that multiplies four elements an execution and counts them."""
    with strategy.scope():
        weights, count = tf.Variable(W, name="weights"), tf.Variable(0, name="count")
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(np.zeros((1, 2), np.float32)))
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(x):
        count.assign_add(1)
        outfeed.enqueue((x @ weights, count.read_value()))

    def program():
        ipu.loops.repeat(4, body, [], infeed)

    return program


def test_threads_share_executions_and_each_gets_its_own_answer(counting, tmp_path):
    path = compile_op(counting, output_path=str(tmp_path / "app.poplar_exec"), freeze_variables=True)
    context = runtime.embedded_runtime_start(path, [], "engine", timeout=50_000)
    answers = {}

    def client(number):
        for step in range(8):
            x = np.full((1, 2), 10 * number + step, np.float32)
            answers[number, step] = x, runtime.embedded_runtime_call([x], context)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for x, (product, _) in answers.values():
        np.testing.assert_allclose(product, x @ W, rtol=1e-6)
    # Variables live in the engine, and every element was counted once.
    counts = sorted(int(count) for _, (_, count) in answers.values())
    assert len(set(counts)) == 32 and context.name() == "engine"
    assert context.output_types() == [tf.float32, tf.int32]


def test_a_call_that_waits_alone_is_answered_after_the_timeout(counting, tmp_path):
    path = compile_op(counting, output_path=str(tmp_path / "app"), freeze_variables=True)
    outputs, context = runtime.embedded_runtime_start_and_call(path, [], [np.ones((1, 2), np.float32)], "engine")
    np.testing.assert_allclose(outputs[0], W.sum(0, keepdims=True))

    @tf.function
    def on_host(x):
        return runtime.embedded_runtime_call([x + 1], context)[0] * 2

    np.testing.assert_allclose(on_host(tf.ones((1, 2))), 4 * W.sum(0, keepdims=True))


def test_variables_that_are_not_frozen_are_given_at_the_start(counting, tmp_path):
    path = compile_op(counting, output_path=str(tmp_path / "app"))
    with pytest.raises(ValueError, match="expects 2 inputs, but 0 were provided"):
        runtime.embedded_runtime_start(path, [], "engine")
    given = {"weights:0": 2 * W, "count:0": np.int32(7)}
    (product, count), _ = runtime.embedded_runtime_start_and_call(path, given, [np.ones((1, 2), np.float32)], "engine")
    np.testing.assert_allclose(product, 2 * W.sum(0, keepdims=True))
    assert count == 8


START = """
import numpy as np
from tensorflow.python import ipu
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
context = ipu.embedded_runtime.embedded_runtime_start({path!r}, [], "engine")
print(ipu.embedded_runtime.embedded_runtime_call([np.ones((1, 2), np.float32)], context)[0].numpy().tolist())
"""


def test_a_function_without_feeds_is_called_with_its_arguments_in_another_process(strategy, tmp_path):
    with strategy.scope():
        weights = tf.Variable(W)
    path = str(tmp_path / "app")
    compile_op(lambda x: x @ weights, [tf.TensorSpec((1, 2))], path, freeze_variables=True)
    ipu.config.reset_ipu_configuration()
    done = subprocess.run([sys.executable, "-c", START.format(path=path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(W.sum(0, keepdims=True).tolist())


def test_what_the_runtime_refuses(counting, tmp_path):
    path = compile_op(counting, output_path=str(tmp_path / "app"), freeze_variables=True)
    context = runtime.embedded_runtime_start(path, [], "engine")
    with pytest.raises(ValueError, match="expects 1 inputs, but 2 were provided"):
        runtime.embedded_runtime_call([1, 2], context)
    with pytest.raises(ValueError, match=r"Mismatched input shape at position 0 .* Expected \(1, 2\)"):
        runtime.embedded_runtime_call([np.ones(3, np.float32)], context)
    with pytest.raises(ValueError, match=r"Mismatched input dtype at position 0 .* Expected float32"):
        runtime.embedded_runtime_call([np.ones((1, 2), np.int32)], context)
    with pytest.raises(NotImplementedError, match="doesn't support stopping an engine"):
        runtime.embedded_runtime_stop(context)
    with pytest.raises(FileNotFoundError, match="Make one with"):
        runtime.embedded_runtime_start(str(tmp_path / "nothing"), [], "engine")
    (tmp_path / "text").write_text("no application")
    with pytest.raises(ValueError, match="no application that was compiled by openipu"):
        runtime.embedded_runtime_start(str(tmp_path / "text"), [], "engine")
    data = bytearray((tmp_path / "app").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "changed").write_bytes(data)
    with pytest.raises(ValueError, match="no application that was compiled by openipu"):
        runtime.embedded_runtime_start(str(tmp_path / "changed"), [], "engine")
    with pytest.raises(UnsupportedError, match="in eager mode only"):
        tf.function(lambda: compile_op(counting))()


def test_a_program_may_return_its_loop(strategy, tmp_path):
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(np.zeros((1, 2), np.float32)))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def program():
        return ipu.loops.repeat(1, lambda x: outfeed.enqueue(x @ W), [], infeed)

    path = compile_op(program, output_path=str(tmp_path / "app"), freeze_variables=True)
    x = np.ones((1, 2), np.float32)
    outputs, _ = runtime.embedded_runtime_start_and_call(path, [], [x], "returned")
    np.testing.assert_allclose(outputs[0], x @ W)


def test_a_program_that_calls_the_host_is_not_stored(strategy, tmp_path):
    def program(x):
        with ipu.scopes.outside_compilation_scope():
            return tf.strings.length(tf.strings.as_string(x))

    with pytest.raises(UnsupportedError, match=r"cannot be stored: it calls functions of this process"):
        compile_op(program, inputs=[tf.TensorSpec([2], tf.float32)], output_path=str(tmp_path / "app"))
