"""Data that stays on the device: steps pick their rows, and train as if they had been fed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openipu.compiler import compile_program
from openipu.program import Plan
from openipu.runtime import DeviceEngine, rows_for, tables
from tests.compiler import toy


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_rows_chosen_on_the_device_train_like_rows_that_are_fed(replicas, accumulation):
    plan = Plan(4, replicas, accumulation)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((37, toy.WIDTH)).astype(np.float32) for _ in range(2))
    numbers = rng.permutation(37)[: 4 * replicas * toy.BATCH]
    numbers = numbers.reshape(4, *([replicas] if replicas > 1 else []), toy.BATCH)
    program = toy.program()
    fed, chosen = toy.Store(program), toy.Store(program)

    engine = DeviceEngine(compile_program(program, plan), fed.shared, fed.local)
    expected = engine.run(engine.place([x[numbers], y[numbers]]), range(replicas))
    engine = DeviceEngine(compile_program(program, plan, rows_for([x, y])), chosen.shared, chosen.local)
    got = engine.run([engine.place_rows(numbers), *engine.place_tables([x, y])], range(replicas))

    np.testing.assert_array_equal(got.outputs[0], expected.outputs[0])
    for name, value in chosen.home().items():
        np.testing.assert_array_equal(value, fed.home()[name], err_msg=name)


@given(st.integers(1, 10**7))
def test_tables_are_at_most_a_third_longer_than_the_data(count):
    rows = rows_for([np.broadcast_to(np.int8(0), (count,))])
    assert rows is not None
    assert count <= rows <= max(count * 4 / 3, count)


def test_arrays_too_large_for_a_second_copy_are_fed(monkeypatch):
    monkeypatch.setattr(tables, "LARGEST", 100)
    assert rows_for([np.zeros(25, np.float32)]) is not None
    assert rows_for([np.zeros(26, np.float32)]) is None
