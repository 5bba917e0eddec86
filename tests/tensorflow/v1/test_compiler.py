"""Programs of TensorFlow 1: a computation is one program on the IPU, with the numbers of stock TensorFlow."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

from openipu.report.recording import finish_all

X = np.random.default_rng(0).standard_normal((12, 4, 6)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 3, (12, 4)).astype(np.int32)


def classifier(x, y):
    """A layer that is used twice, and a variable of the older kind."""
    shared = keras.layers.Dense(6, "tanh", kernel_initializer=keras.initializers.GlorotUniform(1))
    head = tf.get_variable("head", initializer=np.linspace(-1, 1, 18, dtype=np.float32).reshape(6, 3))
    logits = shared(shared(x)) @ head
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    return loss, tf.train.AdamOptimizer(0.01).minimize(loss)


def stock_losses():
    with tf.Graph().as_default(), tf.Session() as session:
        x, y = tf.placeholder(tf.float32, [4, 6]), tf.placeholder(tf.int32, [4])
        loss, train = classifier(x, y)
        session.run(tf.global_variables_initializer())
        return [session.run([loss, train], {x: a, y: b})[0] for a, b in zip(X, Y, strict=True)]


def test_one_run_a_step_trains_like_stock_and_is_saved(graph, on_ipu, tmp_path):
    with tf.device("cpu"):
        x, y = tf.placeholder(tf.float32, [None, 6]), tf.placeholder(tf.int32, [None])
    (loss,) = on_ipu(classifier, [x, y])
    ipu.utils.move_variable_initialization_to_cpu()
    saver = tf.train.Saver()
    summary = tf.summary.scalar("loss", loss)
    expected = stock_losses()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        losses = [session.run([loss, summary], {x: a, y: b})[0] for a, b in zip(X[:6], Y[:6], strict=True)]
        saver.save(session, str(tmp_path / "model"))
    with tf.Session() as session:
        saver.restore(session, str(tmp_path / "model"))
        losses += [session.run(loss, {x: a, y: b}) for a, b in zip(X[6:], Y[6:], strict=True)]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert len(tf.trainable_variables()) == 3 and len(tf.global_variables()) == 3 + 2 * 3 + 2


def test_a_loop_over_an_infeed_trains_like_stock(graph, on_ipu):
    dataset = tf2.data.Dataset.from_tensor_slices((X, Y)).repeat()
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset, feed_name="infeed")
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(feed_name="outfeed")

    def body(x, y):
        loss, train = classifier(x, y)
        return outfeed.enqueue(loss), train

    run = on_ipu(lambda: ipu.loops.repeat(6, body, [], infeed))
    losses = outfeed.dequeue()
    expected = stock_losses()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(infeed.initializer)
        with pytest.raises(ValueError, match="can only be accessed once"):
            infeed.initializer  # noqa: B018
        session.run(run)
        np.testing.assert_allclose(session.run(losses), expected[:6], rtol=1e-5)
        session.run(run)
        session.run(run)
        np.testing.assert_allclose(session.run(losses)[:6], expected[6:], rtol=1e-5)
        assert session.run(losses).shape[0] == 0


def test_variables_that_the_host_assigns_are_seen(graph, on_ipu):
    weight = tf.get_variable("weight", initializer=2.0, use_resource=True)

    def double():
        return weight.assign(weight * 2.0)

    (doubled,) = on_ipu(double)
    (read,) = on_ipu(lambda: weight + 1.0)
    change = weight.assign(10.0)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert [session.run(doubled) for _ in range(2)] == [4.0, 8.0]
        session.run(change)
        assert session.run(doubled) == 20.0 and session.run(weight) == 20.0 and session.run(read) == 21.0
    with tf.Session() as other:
        other.run(tf.global_variables_initializer())
        assert other.run(doubled) == 4.0


def test_what_a_computation_returns(graph, on_ipu):
    x = tf.placeholder(tf.float32, [2])
    counter = tf.get_variable("counter", initializer=0, use_resource=True)
    assert isinstance(on_ipu(lambda a: None, [x]), tf.Operation)
    operation = on_ipu(lambda: counter.assign_add(1).op)
    several = on_ipu(lambda a: (a, [a + 1.0, tf.no_op()], {"k": a * 2.0}), [x])
    with pytest.raises(TypeError, match="must return tensors and operations"):
        on_ipu(lambda: object())
    with pytest.raises(Exception, match="was not placed on an IPU device"):
        ipu.ipu_compiler.compile(lambda: None)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(operation) is None and session.run(counter) == 1
        values = session.run(several, {x: [1.0, 2.0]})
    assert [v.tolist() for v in values] == [[1.0, 2.0], [2.0, 3.0], [2.0, 4.0]]


def test_an_infeed_that_ends_in_a_session_leaves_the_variables(graph, on_ipu):
    total = tf.get_variable("total", initializer=0, use_resource=True)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf2.data.Dataset.range(5, output_type=tf.int32))
    run = on_ipu(lambda: ipu.loops.repeat(3, lambda x: total.assign_add(x).op, [], infeed))
    initializer = infeed.initializer
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(initializer)
        session.run(run)
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(run)
        assert session.run(total) == 3


def test_options_of_old_programs_become_attributes():
    utils = ipu.utils
    opts = utils.create_ipu_config(scheduler_selection="Clustering", disable_graph_outlining=True)
    opts = utils.set_convolution_options(utils.set_convolution_options(opts, {"a": "1"}), {"b": "2"})
    opts = utils.set_floating_point_behaviour_options(utils.set_recomputation_options(opts), esr=False)
    opts = utils.set_ipu_model_options(utils.set_norm_options(opts, use_stable_statistics=True), tiles_per_ipu=4)
    assert opts.scheduling.algorithm is ipu.config.SchedulingAlgorithm.CLUSTERING
    assert not opts.optimizations.enable_graph_outlining and opts.allow_recompute
    assert opts.convolutions.poplar_options == {"a": "1", "b": "2"}
    assert opts.floating_point_behaviour.inv and opts.norms.use_stable_statistics
    assert opts.floating_point_behaviour.esr is ipu.config.StochasticRoundingBehaviour.OFF
    assert opts.ipu_model.tiles_per_ipu == 4
    assert utils.auto_select_ipus(opts, [1, 2]).auto_select_ipus == [1, 2]
    with pytest.raises(Exception, match="already been configured"):
        utils.select_ipus(opts, [0])
    with pytest.raises(Exception, match="mutually exclusive"):
        utils.create_ipu_config(profiling=True, enable_ipu_events=True)
    profiled = utils.create_ipu_config(profiling=True, report_directory="reports").compilation_poplar_options
    assert profiled == {"autoReport.all": "true", "autoReport.directory": "reports"}
    with pytest.raises(Exception, match="must be unique"):
        utils.select_ipus(utils.create_ipu_config(), [0, 0])


def test_reports_are_extracted_from_what_was_predicted(graph, on_ipu, tmp_path, caplog):
    utils = ipu.utils
    finish_all()
    assert utils.extract_all_events([]) == [] and "There are no event traces" in caplog.text
    assert utils.extract_compile_reports([]) == [] and "create_ipu_config(profiling=True)" in caplog.text
    ipu.config.reset_ipu_configuration()
    opts = utils.create_ipu_config(profiling=True, report_directory=str(tmp_path))
    utils.configure_ipu_system(utils.auto_select_ipus(opts, 1))
    with tf.device("cpu"):
        x = tf.placeholder(tf.float32, [8, 8])
    (result,) = on_ipu(lambda x: tf.matmul(x, x), [x])
    with tf.Session() as session:
        session.run(result, {x: np.eye(8)})
    ((name, compiled),) = utils.extract_compile_reports([])
    ((same, executed),) = utils.extract_execute_reports([])
    compiled, executed = json.loads(compiled), json.loads(executed)
    written = json.loads(next(tmp_path.glob("*/report.json")).read_text())
    assert name == same == written["program"]["name"]
    assert compiled["memory"] == written["memory"] and executed["operations"] == written["operations"]
    assert all("nothing of it was measured on an IPU" in one["estimate"] for one in (compiled, executed))
    assert executed["measured"]["executions"] == 1
    assert name in utils.extract_all_strings_from_event_trace([])


def test_a_strategy_runs_a_function_of_a_graph_as_one_program(graph):
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        weight = tf.get_variable("weight", initializer=2.0, use_resource=True)
        x = tf.placeholder(tf.float32, [])

        def step(x, factor):
            loss = factor * tf.square(weight * x)
            return {"loss": loss, "update": tf.train.GradientDescentOptimizer(0.1).minimize(loss)}

        made = strategy.run(step, (x,), {"factor": 0.5})
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        losses = [session.run(made["loss"], {x: 1.0}) for _ in range(2)]
        np.testing.assert_allclose(losses, [2.0, 0.5 * 1.8**2], rtol=1e-6)
        np.testing.assert_allclose(session.run(weight), 1.8 - 0.1 * 1.8, rtol=1e-6)
