"""Native time loops give the results and gradients of the loop that they take the place of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.extend.core import jaxpr_as_fun

from openipu.compiler import recurrent
from openipu.compiler.passes import native_recurrent, optimise
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


def trained_layer(cell, reverse, mask):
    """A layer that multiplies its inputs itself: outputs and the gradients of everything."""

    def run(x, state, weights, dense):
        def loss(x, state, weights, dense):
            outputs, last = recurrent.run(cell, (x,), tuple(state), tuple(weights), mask, reverse, tuple(dense))
            return (outputs * jnp.cos(outputs)).sum() + sum((s**2).sum() for s in last), (outputs, last)

        return jax.value_and_grad(loss, (0, 1, 2, 3), has_aux=True)(x, state, weights, dense)

    return run


@_SETTINGS
@given(
    cell=st.sampled_from([LSTM(), GRU()]), times=st.integers(1, 5), batch=st.integers(1, 9),
    units=st.sampled_from([1, 8, 21, 40]), features=st.sampled_from([1, 5, 28, 64]), masked=st.booleans(),
    reverse=st.booleans(), near=st.booleans(),
)  # fmt: skip
def test_a_layer_may_multiply_its_inputs_itself(cell, times, batch, units, features, masked, reverse, near):
    gates, state, weights, mask = arguments(cell, times, batch, units, masked)
    given = (noise(7, times, batch, features), state, weights,
             [noise(8, features, gates.shape[-1]) / features**0.5, noise(6, gates.shape[-1])])  # fmt: skip
    closed = jax.make_jaxpr(trained_layer(cell, reverse, mask))(*given)
    with pytest.MonkeyPatch.context() as patch:
        if not near:
            patch.setattr(native_recurrent, "_NEAR", 0)
        native = optimise(closed)
    calls = {e.primitive.name: e.params["loop"].features for e in native.eqns if e.primitive.name.startswith("openipu")}
    kind = type(cell).__name__.lower()
    assert calls == {f"openipu_{kind}_forward": features * (near and kind == "lstm"), f"openipu_{kind}_backward": 0}
    flat = jax.tree.leaves(given)
    close(jax.jit(jaxpr_as_fun(native))(*flat), jax.jit(jaxpr_as_fun(closed))(*flat))
    # The product made before, and everything differentiated by JAX.
    gradients = jax.grad(lambda x, s, w, d: trained_loss(cell, (x @ d[0] + d[1],), s, w, mask, reverse), (0, 1, 2, 3))(
        *given
    )
    close(gradients, jax.jit(trained_layer(cell, reverse, mask))(*given)[1])


def trained_loss(cell, inputs, state, weights, mask, reverse):
    outputs, last = recurrent.run(cell, inputs, tuple(state), tuple(weights), mask, reverse)
    return (outputs * jnp.cos(outputs)).sum() + sum((s**2).sum() for s in last)


@pytest.mark.parametrize("units", [12, 70])
def test_lanes_of_a_layer_share_the_weights_of_its_inputs(units):
    gates, state, weights, _ = arguments(LSTM(), 4, 5, units, False)
    given = (noise(7, 4, 5, 9), state, weights, [noise(8, 9, gates.shape[-1]), noise(6, gates.shape[-1])])
    closed = jax.make_jaxpr(trained_layer(LSTM(), False, None))(*given)
    lanes = jax.tree.map(lambda a: jnp.stack([a, a * 0.5, -a]), given[:2])
    flat = jax.tree.leaves((*lanes, *given[2:]))
    axes = [*[0] * 3, *[None] * 3]
    native, plain = (jax.jit(jax.vmap(jaxpr_as_fun(c), axes)) for c in (optimise(closed), closed))
    close(native(*flat), plain(*flat))


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
