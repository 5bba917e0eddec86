"""Stages on devices of their own: run by test_multi_device.py in a process with several JAX devices."""

import attrs
import jax
import numpy as np
import pytest

from openipu.compiler import Cache, compile_program, export, restore
from openipu.compiler.pipeline import compile_pipeline, devices_for
from openipu.compiler.serialised import Loaded
from openipu.program import OutputMode, Pipeline, Plan, Reduction, Schedule, replica
from openipu.runtime import DeviceEngine, PipelineEngine
from tests.compiler import toy


def test_there_are_several_devices():
    assert len(jax.devices()) == 4


@pytest.mark.parametrize("schedule", list(Schedule))
@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("replicas", [1, 2])
def test_stages_on_their_own_devices_train_like_numpy(schedule, stages, replicas):
    count = 8
    pipeline = Pipeline(stages, schedule, tuple(range(stages)))
    plan = Plan(2 * count, replicas, count, accumulation_reduction=Reduction.MEAN, pipeline=pipeline)
    program = toy.program(stages)
    store = toy.Store(program)
    start = dict(store.values)
    executable = compile_pipeline(program, plan, devices_for(plan))
    engine = PipelineEngine(executable, store.shared, store.local)
    block = toy.feeds(2 * count, replicas)
    results = engine.run(engine.place(block), range(replicas))
    expected = toy.reference(start, block, count, replicas, "mean")
    assert [d.id for d in executable.homes[0][: toy.LAYERS]] == [i * stages // toy.LAYERS for i in range(toy.LAYERS)]
    assert executable.homes[0][toy.LAYERS : 2 * toy.LAYERS] == executable.homes[0][: toy.LAYERS]
    np.testing.assert_allclose(np.asarray(results.outputs[0]).reshape(-1), expected["losses"], rtol=1e-5)
    np.testing.assert_allclose(np.ravel(results.finished[0]), expected["totals"], rtol=1e-5)
    for name, value in store.home().items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-5, atol=1e-6, err_msg=name)


def test_what_is_computed_at_the_end_reaches_over_all_replicas():
    plan = Plan(4, 2, 4, pipeline=Pipeline(2, Schedule.GROUPED, (0, 1)))

    def finish(shared, local):
        return [jax.lax.psum(local[1], replica.AXIS) if replica.count() > 1 else -local[1]]

    program = attrs.evolve(toy.program(2), finish=finish)
    store = toy.Store(program)
    start = dict(store.values)
    engine = PipelineEngine(compile_pipeline(program, plan, devices_for(plan)), store.shared, store.local)
    block = toy.feeds(4, 2)
    (totals,) = engine.run(engine.place(block), range(2)).finished
    expected = toy.reference(start, block, 4, 2)["totals"].sum()
    np.testing.assert_allclose(totals, [expected, expected], rtol=1e-5)


def test_inference_runs_over_the_stages():
    pipeline = Pipeline(2, Schedule.GROUPED, (0, 1))
    plan = Plan(4, pipeline=pipeline, outputs=OutputMode.ALL)
    program = toy.program(2, training=False)
    store = toy.Store(program)
    engine = PipelineEngine(compile_pipeline(program, plan, devices_for(plan)), store.shared, store.local)
    block = toy.feeds(4)
    (outputs,) = engine.run(engine.place(block), [0]).outputs
    expected = block[0]
    for i in range(toy.LAYERS):
        expected = np.tanh(expected @ store.values[f"w{i}"])
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("outputs", list(OutputMode))
def test_replicas_on_their_own_devices_come_from_the_cache_as_they_were_compiled(tmp_path, outputs):
    plan = Plan(4, 4, 2, outputs=outputs)
    program = attrs.evolve(toy.program(noise=0.1), identity="toy")
    homes, results = [], []
    for again in (False, True):
        executable = compile_program(program, plan, cache=Cache(tmp_path))
        assert isinstance(executable.call, Loaded) is again
        store = toy.Store(program)
        engine = DeviceEngine(executable, store.shared, store.local)
        for seed in range(2):
            made = engine.run(engine.place(toy.feeds(4, 4, seed=seed)), range(4))
        homes.append(store.home())
        results.append([np.asarray(value) for value in (*made.outputs, *made.finished)])
    for name, value in homes[0].items():
        np.testing.assert_array_equal(value, homes[1][name], err_msg=name)
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)


def test_stages_on_their_own_devices_say_that_they_are_not_cached(tmp_path, caplog):
    plan = Plan(4, gradient_accumulation=4, pipeline=Pipeline(2, Schedule.GROUPED, (0, 1)))
    compile_pipeline(toy.program(2), plan, devices_for(plan), Cache(tmp_path))
    assert "not kept in the cache" in caplog.text


def test_an_exported_executable_of_several_devices_runs_on_them_again():
    plan = Plan(4, 4, 2)
    program = attrs.evolve(toy.program(), identity="toy")
    made = compile_program(program, plan)
    homes = []
    for executable in (made, restore(program, plan, export(made))):
        store = toy.Store(program)
        engine = DeviceEngine(executable, store.shared, store.local)
        engine.run(engine.place(toy.feeds(4, 4)), range(4))
        homes.append(store.home())
    for name, value in homes[0].items():
        np.testing.assert_array_equal(value, homes[1][name], err_msg=name)
