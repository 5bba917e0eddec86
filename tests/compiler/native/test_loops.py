"""Executions whose loops are native calls give the numbers of those without, on replicas and with micro-batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openipu.compiler import compile_program
from openipu.compiler.passes.loops import assembly
from openipu.program import OutputMode, Plan, Program, Slot
from openipu.runtime import DeviceEngine
from tests.compiler import toy

pytestmark = pytest.mark.usefixtures("kernels")

BATCH, FEATURES, UNITS = 16, 130, 70


@pytest.fixture
def calls(monkeypatch):
    """How many loops became native calls, however little there is to multiply."""
    made = []

    def counted(form):
        def assemble(*arguments):
            found = form(*arguments)
            made.append(form.__name__)
            return found

        return assemble

    monkeypatch.setattr(assembly, "_LEAST_MULTIPLICATIONS", 0)
    monkeypatch.setattr(assembly, "of_scan", counted(assembly.of_scan))
    monkeypatch.setattr(assembly, "of_step", counted(assembly.of_step))
    return made


def network() -> Program:
    """Two layers with momentum, and a sum of all losses."""

    def step(shared, local, batch, key):
        x, y = batch

        def loss(first, second):
            return ((jnp.tanh(x @ first) @ second - y) ** 2).mean()

        value, gradients = jax.value_and_grad(loss, (0, 1))(*shared[:2])
        return [*gradients, *(jnp.zeros_like(s) for s in shared[2:])], [local[0] + value], [value]

    def update(shared, local, gradients):
        weights, moments = shared[:2], shared[2:]
        moments = [0.9 * m + g for m, g in zip(moments, gradients, strict=False)]
        return [*(w - 0.01 * m for w, m in zip(weights, moments, strict=True)), *moments], {}

    sizes = {"first": (FEATURES, UNITS), "second": (UNITS, 5)}
    return Program(
        name="network",
        shared=tuple(Slot(f"{kind} {name}", size, "float32") for kind in ("w", "m") for name, size in sizes.items()),
        local=(Slot("total", (), "float32"),),
        batch=(Slot("x", (BATCH, FEATURES), "float32"), Slot("y", (BATCH, 5), "float32")),
        step=step,
        update=update,
    )


def trained(plan, native, monkeypatch):
    """Losses of two executions, and the state after them."""
    monkeypatch.setenv("OPENIPU_NATIVE", native)
    program = network()
    store = toy.Store(program)
    engine = DeviceEngine(compile_program(program, plan), store.shared, store.local)
    random = np.random.default_rng(0)
    losses = []
    for _ in range(2):
        feeds = [
            random.standard_normal(plan.layout.shape(slot.shape, plan.device_iterations)).astype("float32") * 0.3
            for slot in program.batch
        ]
        losses += [np.asarray(o) for o in engine.run(engine.place(feeds), range(plan.replicas)).outputs]
    return [*losses, *store.home().values()]


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan(device_iterations=8), id="a loop"),
        pytest.param(Plan(device_iterations=8, outputs=OutputMode.FINAL), id="the last output alone"),
        pytest.param(Plan(device_iterations=8, gradient_accumulation=4), id="micro-batches"),
        pytest.param(Plan(device_iterations=6, replicas=2), id="replicas"),
        pytest.param(Plan(device_iterations=1), id="one step"),
    ],
)
def test_native_loops_train_like_those_of_xla(plan, calls, monkeypatch):
    received = trained(plan, "auto", monkeypatch)
    assert calls
    calls.clear()
    expected = trained(plan, "off", monkeypatch)
    assert not calls
    for one, other in zip(expected, received, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)
