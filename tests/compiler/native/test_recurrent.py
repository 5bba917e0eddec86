"""Native time loops give the results and gradients of the loop that they take the place of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.extend.core import jaxpr_as_fun

from openipu.compiler import recurrent
from openipu.compiler.passes import optimise
from openipu.compiler.recurrent import GRU, LSTM

pytestmark = pytest.mark.usefixtures("kernels")

_SETTINGS = settings(
    derandomize=True, deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def noise(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def arguments(cell, times, batch, units, masked):
    gates, states = (4, 2) if isinstance(cell, LSTM) else (3, 1)
    weights = [noise(1, units, gates * units) / units**0.5, *([noise(2, gates * units)] if gates == 3 else [])]
    mask = noise(9, times, batch) > -0.5 if masked else None
    return noise(0, times, batch, gates * units), [noise(3 + i, batch, units) for i in range(states)], weights, mask


def trained(cell, reverse):
    """Outputs, last state and the gradients of everything."""

    def run(gates, state, weights, mask):
        def loss(gates, state, weights):
            outputs, last = recurrent.run(cell, (gates,), tuple(state), tuple(weights), mask, reverse)
            weighted = outputs * jnp.cos(jnp.arange(outputs.size, dtype=jnp.float32)).reshape(outputs.shape)
            return weighted.sum() + sum((s**2).sum() for s in last), (outputs, last)

        return jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(gates, state, weights)

    return run


def names(closed):
    return {e.primitive.name for e in closed.eqns}


def close(received, expected):
    for r, e in zip(jax.tree.leaves(received), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(r, e, rtol=2e-5, atol=2e-5 * float(jnp.abs(e).max()))


@_SETTINGS
@given(
    cell=st.sampled_from([LSTM(), GRU()]), times=st.integers(1, 5), batch=st.integers(1, 9),
    units=st.sampled_from([1, 3, 8, 16, 21, 40, 70]), masked=st.booleans(), reverse=st.booleans(),
)  # fmt: skip
def test_a_layer_and_its_gradients_are_those_of_the_plain_loop(cell, times, batch, units, masked, reverse):
    given = arguments(cell, times, batch, units, masked)
    closed = jax.make_jaxpr(trained(cell, reverse))(*given)
    native = optimise(closed)
    kind = type(cell).__name__.lower()
    assert {f"openipu_{kind}_forward", f"openipu_{kind}_backward"} <= names(native)
    flat = jax.tree.leaves(given)
    close(jax.jit(jaxpr_as_fun(native))(*flat), jax.jit(jaxpr_as_fun(closed))(*flat))


@pytest.mark.parametrize("cell", [LSTM(), GRU()])
@pytest.mark.parametrize("shared", [True, False])
def test_lanes_are_computed_each_for_itself(cell, shared):
    lanes, (gates, state, weights, _) = 3, arguments(cell, 4, 5, 12, False)
    gates, state = jax.tree.map(lambda a: jnp.stack([a * (1 + i) for i in range(lanes)]), (gates, state))
    if not shared:
        weights = jax.tree.map(lambda a: jnp.stack([a / (1 + i) for i in range(lanes)]), weights)
    one = jax.tree.map(lambda a: a[0], (gates, state, weights if not shared else None))
    closed = jax.make_jaxpr(trained(cell, False))(one[0], one[1], weights if shared else one[2], None)
    axes = [*[0] * (1 + len(state)), *[None if shared else 0] * len(weights)]
    flat = jax.tree.leaves((gates, state, weights))
    native, plain = (jax.jit(jax.vmap(jaxpr_as_fun(c), axes)) for c in (optimise(closed), closed))
    # Twice, so that lanes of lanes are met as well.
    close(native(*flat), plain(*flat))
    twice = [a if axis is None else jnp.stack([a, a * 0.5]) for a, axis in zip(flat, axes, strict=True)]
    native, plain = (jax.jit(jax.vmap(jax.vmap(jaxpr_as_fun(c), axes), axes)) for c in (optimise(closed), closed))
    close(native(*twice), plain(*twice))


def test_large_and_tiny_numbers_saturate_as_they_should():
    values = jnp.asarray([-np.inf, -1e30, -200, -30, -1e-6, 0, 1e-6, 30, 200, 1e30, np.inf, np.nan], jnp.float32)
    gates = jnp.tile(values[None, :, None], (1, 1, 4))
    state = (jnp.zeros((len(values), 1)), jnp.ones((len(values), 1)))

    def run(gates, hidden, memory):
        return recurrent.forward(LSTM(), (gates,), (hidden, memory), (jnp.ones((1, 4)),))

    closed = jax.make_jaxpr(run)(gates, *state)
    native, plain = (jax.jit(jaxpr_as_fun(c))(gates, *state) for c in (optimise(closed), closed))
    for ours, theirs in zip(native, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=1e-30)


@pytest.mark.parametrize(
    "cell",
    [LSTM(activation="relu"), GRU(reset_after=False), GRU(recurrent_activation="hard_sigmoid")],
)
def test_other_cells_keep_the_plain_loop(cell):
    gates, state, weights, _ = arguments(cell, 3, 2, 4, False)
    if isinstance(cell, GRU) and not cell.reset_after:
        weights = [weights[0][:, :8], weights[0][:, 8:]]
    closed = optimise(jax.make_jaxpr(trained(cell, False))(gates, state, weights, None))
    assert not any(name.startswith("openipu") for name in names(closed))


def test_only_float32_is_computed_natively():
    gates, state, weights, _ = jax.tree.map(lambda a: a.astype(jnp.bfloat16), arguments(LSTM(), 3, 2, 4, False))
    closed = optimise(jax.make_jaxpr(trained(LSTM(), False))(gates, state, weights, None))
    assert not any(name.startswith("openipu") for name in names(closed))
