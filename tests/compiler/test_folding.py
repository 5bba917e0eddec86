"""Micro-batches as lanes: the numbers of one after the other, and what keeps a step from being folded."""

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openipu.compiler import compile_program, folding
from openipu.compiler.execution import traced_step
from openipu.program import OutputMode, Plan, Program, Reduction, Slot
from openipu.program.replica import ALONE
from openipu.runtime import DeviceEngine
from tests.compiler import toy

WIDTH = 5


def program(step=None, gradient_dtype="float32", training=True) -> Program:
    """One layer with noise from a seed of its own and from the key, a running mean, a counter and a sum of losses."""

    def own(shared, local, batch, key):
        (weight,), (seed, constant, running, total, first) = shared, local
        (x,) = batch
        drawn = jax.random.normal(jax.random.key(seed), x.shape, jnp.float32)
        noise = drawn + jax.random.uniform(key, x.shape, jnp.float32)

        def loss_of(weight):
            h = (x + constant * noise) @ weight
            return (h**2).mean(), h.mean(0)

        (loss, mean), gradient = jax.value_and_grad(loss_of, has_aux=True)(weight)
        running = 0.9 * running + 0.1 * mean
        first = jnp.where(first == 0, loss, first)
        gradients = [gradient.astype(gradient_dtype)] if training else []
        return gradients, [seed * 3 + 1, constant, running, total + loss, first], [loss, running, x + 1]

    return Program(
        name="folded",
        shared=(Slot("w", (WIDTH, WIDTH), "float32"),),
        local=(
            Slot("seed", (), "uint32"), Slot("constant", (), "float32"), Slot("running", (WIDTH,), "float32"),
            Slot("total", (), "float32"), Slot("first", (), "float32"),
        ),
        batch=(Slot("x", (3, WIDTH), "float32"),),
        step=step or own,
        update=(lambda shared, local, gradients: ([shared[0] - 0.1 * gradients[0].astype("float32")], {}))
        if training
        else None,
    )  # fmt: skip


def trained(given: Program, plan: Plan, fold: str, monkeypatch) -> list[np.ndarray]:
    """All that two executions leave and give."""
    monkeypatch.setenv("OPENIPU_FOLD", fold)
    store = toy.Store(given)
    store.values |= {"seed": np.uint32(7), "constant": np.float32(0.5)}
    engine = DeviceEngine(compile_program(given, plan), store.shared, store.local)
    shape = (2, *plan.layout.shape((3, WIDTH), plan.device_iterations))
    blocks = np.random.default_rng(0).standard_normal(shape).astype("float32")
    outputs = [engine.run(engine.place([block]), range(plan.replicas)).outputs for block in blocks]
    return [np.asarray(v) for v in (*jax.tree.leaves(outputs), *store.home().values())]


PLANS = {
    "one replica": Plan(12, 1, 6, accumulation_reduction=Reduction.MEAN),
    "replicas, running mean, last outputs": Plan(
        12, 2, 6, accumulation_reduction=Reduction.RUNNING_MEAN, outputs=OutputMode.FINAL
    ),
    "stochastic rounding": Plan(8, 1, 4, stochastic_rounding=True),
}


@pytest.mark.parametrize("name", PLANS)
def test_folded_micro_batches_give_the_numbers_of_one_after_the_other(name, monkeypatch):
    given = program(gradient_dtype="float16" if name == "stochastic rounding" else "float32")
    expected = trained(given, PLANS[name], "off", monkeypatch)
    got = trained(given, PLANS[name], "auto", monkeypatch)
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_memory_budget_folds_fewer_of_them_with_the_same_numbers(monkeypatch):
    plan = Plan(12, 1, 6, accumulation_reduction=Reduction.RUNNING_MEAN)
    expected = trained(program(), plan, "off", monkeypatch)
    monkeypatch.setattr(folding, "_MOST_BYTES", 3 * cut(program()).bytes)
    for ours, theirs in zip(trained(program(), plan, "auto", monkeypatch), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_inference_folds_its_iterations(monkeypatch):
    given, plan = program(training=False), Plan(6)
    expected = trained(given, plan, "off", monkeypatch)
    for ours, theirs in zip(trained(given, plan, "auto", monkeypatch), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def cut(given: Program) -> folding.Folding | None:
    with jax.enable_x64(True):
        step, structure = traced_step(given, ALONE, False)
    return folding.fold(step, (len(given.shared), len(given.local), len(given.batch)), structure)


def test_local_values_are_told_apart_by_what_changes_them():
    found = cut(program())
    assert (found.fixed, found.ticking, found.carried) == ((1,), (0,), (2, 3, 4))
    assert found.late == (False, True, False)
    assert not any(e.primitive.name == "dot_general" for e in found.tail.eqns)


def test_as_many_are_folded_as_divide_the_update_and_fit():
    found = cut(program())
    assert found.lanes(6) == 6
    assert attrs.evolve(found, bytes=folding._MOST_BYTES // 5).lanes(6) == 3
    assert attrs.evolve(found, bytes=folding._MOST_BYTES).lanes(6) == 1


def gradient_of_running_state(shared, local, batch, key):
    gradients, after, outputs = program().step(shared, local, batch, key)
    return [gradients[0] + local[3]], after, outputs


def large_running_state(shared, local, batch, key):
    gradients, after, outputs = program().step(shared, local, batch, key)
    after[3] = local[3] + (local[2] @ shared[0]).sum()
    return gradients, after, outputs


def prints(shared, local, batch, key):
    jax.debug.print("{}", batch[0].sum())
    return program().step(shared, local, batch, key)


def branches(shared, local, batch, key):
    gradients, after, outputs = program().step(shared, local, batch, key)
    return [jax.lax.cond(batch[0].sum() > 0, jnp.sin, jnp.cos, gradients[0])], after, outputs


@pytest.mark.parametrize("step", [gradient_of_running_state, large_running_state, prints, branches])
def test_steps_that_need_their_order_keep_it(step):
    assert cut(program(step)) is None


def test_the_steps_of_the_toy_program_fold():
    assert cut(toy.program()).lanes(8) == 8
