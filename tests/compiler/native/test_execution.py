"""Whole executions with native kernels give the numbers of those without, on replicas and with micro-batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openipu.compiler import compile_program, recurrent
from openipu.compiler.passes import native_product
from openipu.compiler.recurrent import GRU, LSTM
from openipu.program import Plan, Program, Slot
from openipu.runtime import DeviceEngine
from tests.compiler import toy

pytestmark = pytest.mark.usefixtures("kernels")

TIMES, BATCH, FEATURES, UNITS = 3, 4, 5, 8


def reader(cell) -> Program:
    """A recurrent layer whose last output is compared with a target, trained by gradient descent."""
    gates = 4 if isinstance(cell, LSTM) else 3

    def step(shared, local, batch, key):
        x, y = batch

        def loss(inputs, hidden, bias):
            share = jnp.einsum("tbf,fg->tbg", x, inputs)
            start = (jnp.zeros((BATCH, UNITS), jnp.float32),) * (gates - 2)
            weights = (hidden,) if gates == 4 else (hidden, bias)
            outputs, _ = recurrent.run(cell, (share + bias,), start, weights)
            return ((outputs[-1] - y) ** 2).mean()

        value, gradients = jax.value_and_grad(loss, (0, 1, 2))(*shared)
        return list(gradients), [local[0] + value], [value]

    def update(shared, local, gradients):
        return [w - 0.1 * g for w, g in zip(shared, gradients, strict=True)], {}

    return Program(
        name="reader",
        shared=(
            Slot("w inputs", (FEATURES, gates * UNITS), "float32"), Slot("w hidden", (UNITS, gates * UNITS), "float32"),
            Slot("w bias", (gates * UNITS,), "float32"),
        ),
        local=(Slot("total", (), "float32"),),
        batch=(Slot("x", (TIMES, BATCH, FEATURES), "float32"), Slot("y", (BATCH, UNITS), "float32")),
        step=step,
        update=update,
    )  # fmt: skip


def trained(program, plan, native, monkeypatch):
    monkeypatch.setenv("OPENIPU_NATIVE", native)
    store = toy.Store(program)
    executable = compile_program(program, plan)
    engine = DeviceEngine(executable, store.shared, store.local)
    random = np.random.default_rng(0)
    feeds = [
        random.standard_normal(plan.layout.shape(slot.shape, plan.device_iterations)).astype("float32")
        for slot in program.batch
    ]
    outputs = engine.run(engine.place(feeds), range(plan.replicas)).outputs
    calls = "openipu_" in executable.call.as_text()
    return calls, [np.asarray(v) for v in (*outputs, *store.home().values())]


@pytest.mark.parametrize("cell", [LSTM(), GRU()])
def test_a_recurrent_layer_trains_the_same_on_replicas_with_micro_batches(cell, monkeypatch):
    monkeypatch.setattr(native_product, "_LEAST", 0)
    monkeypatch.setattr(native_product, "_SMALLEST_SIDE", 1)
    plan = Plan(4, 2, 2)
    native, got = trained(reader(cell), plan, "on", monkeypatch)
    plain, expected = trained(reader(cell), plan, "off", monkeypatch)
    assert native
    assert not plain
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)
