"""A program made ready to run: engines, synthetic data, traps, failures, threads, forks."""

import multiprocessing
import threading

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openipu.compiler import Cache, Traps
from openipu.errors import ForkedError, InvalidNumberError
from openipu.program import Plan, Program, Slot
from openipu.runtime import (
    CompiledPrograms,
    DeviceEngine,
    OfflineEngine,
    Resident,
    Session,
    Setting,
    Synthetic,
    forget_compiled_programs,
)
from tests.compiler import toy

PLAN = Plan(4, 1, 2)
REAL = Setting()


def session(setting=REAL, program=None):
    program = program or toy.program()
    store = toy.Store(program)
    return Session(program, PLAN, store.shared, store.local, setting), store


def run(made):
    return made.run(made.place(lambda: toy.feeds(PLAN.device_iterations)), [0])


def copied(values):
    return {name: np.array(value) for name, value in values.items()}


def test_a_session_attaches_before_every_execution():
    calls = []
    made, _ = session(Setting(attach=lambda: calls.append(1)))
    run(made)
    run(made)
    assert calls == [1, 1] and isinstance(made.engine, DeviceEngine)


def test_an_offline_session_keeps_the_executable_and_gives_zeros(tmp_path):
    def attach():
        raise AssertionError

    program = attrs.evolve(toy.program(), identity="toy")
    made, store = session(Setting(Cache(tmp_path), offline=True, attach=attach), program)
    before = copied(store.values)
    assert isinstance(made.engine, OfflineEngine) and list(tmp_path.iterdir())
    assert not np.any(run(made).outputs[0])
    np.testing.assert_equal(store.home(), before)


def test_synthetic_data_stays_where_it_is():
    made, store = session(Setting(synthetic=Synthetic("normal", feeds=True, parameters=True, results=True)))
    before = copied(store.values)

    def real():
        raise AssertionError

    results = made.run(made.place(real), [0])
    assert not np.any(results.outputs[0]) and results.outputs[0].shape == (4,)
    np.testing.assert_equal(store.home(), before)


def test_what_was_compiled_is_forgotten_when_devices_are_reset():
    programs, others = CompiledPrograms(), CompiledPrograms()
    programs["a"], others["b"] = 1, 2
    forget_compiled_programs()
    assert not programs and not others


def dividing(update=None):
    """y = sum(w / x), trained by `update`."""

    def step(shared, local, batch, key):
        with jax.named_scope("quotient"):
            y = (shared[0] / batch[0]).sum()
        return ([y] if update else []), list(local), [y]

    slots = [Slot(name, (), "float32") for name in "wn"]
    inputs = (Slot("x", (2,), "float32"),)
    return Program("dividing", (slots[0],), (slots[1],), inputs, step, update, lambda shared, local: [local[0]])


def threes():
    return [Resident(lambda: np.float32(3.0), lambda _: None)]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_trap_names_the_first_operation_and_is_set_again(replicas):
    plan = Plan(2, replicas)
    made = Session(dividing(), plan, threes(), threes(), Setting(traps=Traps(nan=True, infinity=True)))
    good = np.ones((2, *plan.layout.axes, 2), np.float32)
    bad = good.copy()
    bad[0, ..., 1] = 0
    assert len(made.run(made.place(lambda: [good]), range(replicas)).finished) == 1
    with pytest.raises(InvalidNumberError) as caught:
        made.run(made.place(lambda: [bad]), range(replicas))
    assert "div" in caught.value.site.operation and caught.value.site.scope == "quotient"
    made.run(made.place(lambda: [good]), range(replicas))
    nans = Session(dividing(), plan, threes(), threes(), Setting(traps=Traps(nan=True)))
    nans.run(nans.place(lambda: [bad]), range(replicas))


def test_an_update_that_leaves_an_infinity_is_trapped():
    def update(shared, local, gradients):
        return [1 / (shared[0] * 0)], {}

    setting = Setting(traps=Traps(infinity=True))
    made = Session(dividing(update), Plan(), threes(), threes(), setting, watched=[0])
    with pytest.raises(InvalidNumberError) as caught:
        made.run(made.place(lambda: [np.ones((1, 2), np.float32)]), [0])
    assert caught.value.site.update


def test_an_execution_that_fails_leaves_the_values_from_before_it():
    program = toy.program()
    fails = []

    def check(x):
        if fails:
            raise RuntimeError("no memory")
        return x

    def step(shared, local, batch, key):
        gradients, local, outputs = program.step(shared, local, batch, key)
        return gradients, local, [jax.pure_callback(check, jax.ShapeDtypeStruct((), jnp.float32), outputs[0])]

    made, store = session(program=attrs.evolve(program, step=step))
    run(made)
    before = copied(store.home())
    fails.append(True)
    with pytest.raises(Exception, match="no memory"):
        run(made)
    np.testing.assert_equal(store.home(), before)
    fails.clear()
    run(made)
    assert np.any(store.home()["w0"] != before["w0"])


def test_threads_take_turns():
    made, store = session()
    other, expected = session()
    for _ in range(4 * 25):
        run(other)
    threads = [threading.Thread(target=lambda: [run(made) for _ in range(25)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_equal(store.home(), expected.home())


def _in_child(queue, made):
    try:
        run(made)
    except ForkedError as error:
        queue.put(str(error))


def test_a_forked_child_is_told_to_be_spawned():
    made, _ = session()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue, made))
    child.start()
    assert "spawn" in queue.get(timeout=60)
    child.join()
