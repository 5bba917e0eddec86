"""Stages on devices of their own: run by test_multi_device.py in a process with several JAX devices."""

import jax
import numpy as np
import pytest

from openipu.compiler.pipeline import compile_pipeline, devices_for
from openipu.program import OutputMode, Pipeline, Plan, Reduction, Schedule
from openipu.runtime import PipelineEngine
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
