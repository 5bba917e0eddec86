"""One execution of the core against NumPy: steps, accumulation, replicas, outputs."""

import attrs
import numpy as np
import pytest

from openipu.compiler import compile_program
from openipu.program import OutputMode, Plan, Reduction
from openipu.runtime import DeviceEngine
from tests.compiler import toy


def run(plan, executions=2, accumulators=None):
    program = attrs.evolve(toy.program(), accumulators=accumulators)
    store = toy.Store(program)
    start = dict(store.values)
    engine = DeviceEngine(compile_program(program, plan), store.shared, store.local)
    blocks = [toy.feeds(plan.device_iterations, plan.replicas, seed=s) for s in range(executions)]
    results = [engine.run(engine.place(b), range(plan.replicas)) for b in blocks]
    joined = [np.concatenate(parts) for parts in zip(*blocks, strict=True)]
    expected = toy.reference(
        start, joined, plan.gradient_accumulation, plan.replicas, plan.accumulation_reduction.value
    )
    return store.home(), expected, results


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("reduction", list(Reduction))
def test_execution_trains_like_numpy(replicas, accumulation, reduction):
    plan = Plan(8, replicas, accumulation, accumulation_reduction=reduction)
    got, expected, results = run(plan)
    for name, value in got.items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-5, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(np.ravel(results[-1].finished[0]), expected["totals"], rtol=1e-5)


@pytest.mark.parametrize("replicas", [1, 3])
def test_outputs_of_all_steps_come_back_in_order(replicas):
    _, expected, results = run(Plan(6, replicas, 3))
    got = np.concatenate([np.asarray(r.outputs[0]).reshape(-1) for r in results])
    np.testing.assert_allclose(got, expected["losses"], rtol=1e-5)


@pytest.mark.parametrize("replicas", [1, 3])
def test_only_the_last_steps_outputs_come_back_when_asked(replicas):
    _, expected, results = run(Plan(6, replicas, 3, outputs=OutputMode.FINAL))
    np.testing.assert_allclose(np.ravel(results[-1].outputs[0]), expected["losses"][-replicas:], rtol=1e-5)


def test_accumulators_can_have_another_dtype():
    wide, _, _ = run(Plan(8, 1, 8))
    narrow, _, _ = run(Plan(8, 1, 8), accumulators=("float16",) * toy.LAYERS)
    difference = max(np.abs(wide[f"w{i}"] - narrow[f"w{i}"]).max() for i in range(toy.LAYERS))
    assert 0 < difference < 1e-2


def test_replicas_draw_different_random_numbers_and_seeds_repeat_them():
    program = toy.program(noise=0.5)
    plan = Plan(2, 2)

    def losses(seeds):
        store = toy.Store(program)
        engine = DeviceEngine(compile_program(program, plan), store.shared, store.local)
        same = [np.repeat(f[:, :1], 2, axis=1) for f in toy.feeds(2, 2)]
        return np.asarray(engine.run(engine.place(same), seeds).outputs[0])

    first = losses([1, 2])
    assert first[0, 0] != first[0, 1]
    assert (first == losses([1, 2])).all()
    assert (losses([5, 5])[0, 0] == losses([5, 5])[0, 1]).all()


def test_indivisible_accumulation_is_refused_with_the_numbers():
    with pytest.raises(ValueError, match=r"device_iterations=10, gradient_accumulation=4. Use 8 or 12"):
        Plan(10, 1, 4)
