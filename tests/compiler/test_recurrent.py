"""The recurrent kernel's results and gradients are those of its cell applied time after time, by JAX's own rules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openipu.compiler import recurrent
from openipu.compiler.recurrent import ACTIVATIONS, GRU, LSTM, Plain

TIMES, BATCH, UNITS = 4, 3, 4


def noise(*shape):
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), jnp.float32)


def step_by_step(cell, inputs, state, weights, mask=None, reverse=False):
    outputs = [None] * TIMES
    for time in reversed(range(TIMES)) if reverse else range(TIMES):
        after, _ = cell.step(tuple(i[time] for i in inputs), state, weights)
        if mask is not None:
            after = tuple(jnp.where(mask[time][:, None], a, b) for a, b in zip(after, state, strict=True))
        state, outputs[time] = after, after[0]
    return jnp.stack(outputs), state


def gates(count):
    return noise(TIMES, BATCH, count * UNITS)


STATE = noise(BATCH, UNITS)
ATTENTION = jnp.abs(noise(TIMES, BATCH, 1))
RESET_AFTER = (noise(UNITS, 3 * UNITS), noise(3 * UNITS))
RESET_BEFORE = (noise(UNITS, 2 * UNITS), noise(UNITS, UNITS))
CASES = {
    "lstm": (LSTM(), (gates(4),), (STATE, STATE + 1), (noise(UNITS, 4 * UNITS),)),
    "projected lstm": (LSTM(), (gates(4),), (noise(BATCH, 2), STATE), (noise(2, 4 * UNITS), noise(UNITS, 2))),
    "gru": (GRU(), (gates(3),), (STATE,), RESET_AFTER),
    "gru that resets before": (GRU(reset_after=False), (gates(3),), (STATE,), RESET_BEFORE),
    "gru with attention": (GRU(), (gates(3), ATTENTION), (STATE,), RESET_AFTER),
    "attention and reset before": (GRU(reset_after=False), (gates(3), ATTENTION), (STATE,), RESET_BEFORE),
    "plain": (Plain("relu"), (gates(1),), (STATE,), (noise(UNITS, UNITS),)),
}


def check(cell, inputs, state, weights, **options):
    def loss(run):
        def of(inputs, state, weights):
            outputs, last = run(cell, inputs, state, weights, **options)
            return (outputs * jnp.cos(jnp.arange(outputs.size)).reshape(outputs.shape)).sum() + sum(
                (s**2).sum() for s in last
            )

        return jax.jit(jax.value_and_grad(of, (0, 1, 2)))(inputs, state, weights)

    expected, received = jax.tree.leaves(loss(step_by_step)), jax.tree.leaves(loss(recurrent.run))
    for e, r in zip(expected, received, strict=True):
        np.testing.assert_allclose(r, e, rtol=1e-4, atol=1e-5 * float(jnp.abs(e).max()))


@pytest.mark.parametrize("name", CASES)
def test_a_loop_computes_what_its_cell_does_step_by_step(name):
    check(*CASES[name])


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_mask_leaves_the_state_as_it_is_in_both_directions(name):
    mask = jnp.asarray(np.random.default_rng(0).random((TIMES, BATCH)) > 0.4)
    check(*CASES[name], mask=mask, reverse=True)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_gradient_of_an_activation_follows_from_its_result(name):
    x = noise(5, 6)
    result, back = jax.vjp(ACTIVATIONS[name].function, x)
    upstream = noise(5, 6) + 1
    np.testing.assert_allclose(ACTIVATIONS[name].gradient(result, upstream), back(upstream)[0], rtol=1e-5, atol=1e-6)


def test_replicas_are_lanes_of_the_loop():
    cell, inputs, state, weights = CASES["lstm"]
    two = jax.tree.map(lambda a: jnp.stack([a, -a]), (inputs, state))
    outputs, _ = jax.vmap(lambda i, s: recurrent.run(cell, i, s, weights))(*two)
    for lane, sign in enumerate((1, -1)):
        alone, _ = recurrent.run(cell, (inputs[0] * sign,), tuple(s * sign for s in state), weights)
        np.testing.assert_allclose(outputs[lane], alone, rtol=1e-5, atol=1e-6)
